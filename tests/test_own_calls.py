"""A user's own tensors: their file, the problem that they are of, and a study that is checked on them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import ROOT, Evo, rows
from safetensors.torch import save_file
from times import timing_on
from torch import Tensor
from trials import study, timed

from evo.api.parse import located
from evo.calls import MOST_CALLS, OwnCalls, chosen_calls, only_problem, with_calls
from evo.device.driver import gpu_names
from evo.device.emulator import EmulatorDevice
from evo.errors import EvoError, MachineError, UsageError
from evo.evaluate import EvaluatorSpec
from evo.gate import plan_own
from evo.gpu import KNOWN_GPUS
from evo.store import Store
from evo.study import Setup
from evo.task import load_task
from evo.timing import ranking_named, timing_inputs

TOYS = (ROOT / "tests" / "toys",)
ATTENTION = load_task("attention")


def call(length: int = 16, dtype: torch.dtype = torch.float16, heads: int = 2, **changed: Any) -> Any:
    """The tensors of a call of attention, some of them changed."""
    rng = torch.Generator().manual_seed(length)
    found = {name: torch.randn(1, heads, length, 32, generator=rng).to(dtype) for name in "qkv"}
    return {name: tensor for name, tensor in {**found, **changed}.items() if tensor is not None}


def written(path: Path, *calls: Mapping[str, Tensor], said: Mapping[str, str] | None = None) -> str:
    """A file of several calls, in the form that its suffix says."""
    tensors = {f"{n}.{name}": x for n, one in enumerate(calls) for name, x in one.items()}
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {name: x.numpy() for name, x in tensors.items()}
        savez(path, {**arrays, **{name: np.asarray(text) for name, text in (said or {}).items()}})
    else:
        save_file(tensors, path, metadata=dict(said or {}))
    return str(path)


def savez(path: Path, arrays: Mapping[str, Any]) -> None:
    write: Any = np.savez  # its types know no arrays by name
    write(path, **arrays)


# ---------------------------------------------------------------------------------- the file and its problem


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_shapes_types_and_metadata_say_the_problem(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path / f"mine{suffix}", call(16), call(16), call(48), said={"causal": "true"})
    found = chosen_calls(ATTENTION, file)
    assert {p.key: own.numbers for p, own in found.items()} == {
        "attention B=1 H=2 L=16 D=32 causal=1 fp16": (0, 1),
        "attention B=1 H=2 L=48 D=32 causal=1 fp16": (2,),
    }
    problem, own = only_problem(file, chosen_calls(ATTENTION, f"{file}:2"))
    assert (problem["L"], own.numbers, list(own.names)) == (48, (2,), ["mine:2"])
    assert re.fullmatch("[0-9a-f]{64}", own.digest)
    task = with_calls(ATTENTION, problem, own)
    assert torch.equal(task.inputs(problem, "own data 2", 0, "cpu")["k"], call(48)["k"])
    wanted = ATTENTION.problem("1,2,16,32")
    assert [own.numbers for own in chosen_calls(ATTENTION, file, [wanted]).values()] == [(0, 1)]


def test_a_file_of_one_call_needs_no_number_and_bf16_is_kept(tmp_path: Path) -> None:
    save_file(call(dtype=torch.bfloat16), tmp_path / "one.safetensors")
    ((problem, own),) = chosen_calls(ATTENTION, str(tmp_path / "one.safetensors")).items()
    assert (problem.dtype, own.numbers) == ("bf16", (0,))


@pytest.mark.parametrize(
    ("name", "arrays", "key"),
    [
        ("row_sum", {"x": np.ones((33, 96), np.float32)}, "row_sum N=33 fp32"),
        ("saxpy", {"x": np.ones(50, np.float32), "y": np.ones(50, np.float32)}, "saxpy N=50 fp32"),
        ("scale", {"x": np.ones(50, np.float16), "bias": np.asarray(2)}, "scale N=50 negate=0 bias=2 fp16"),
        ("row_sum", {"x": np.asfortranarray(np.ones((4, 96), ">f4"))}, "row_sum N=4 fp32"),
    ],
)
def test_any_task_reads_its_calls(tmp_path: Path, name: str, arrays: Any, key: str) -> None:
    """Also arrays whose rows or bytes are in another order."""
    savez(tmp_path / "mine.npz", arrays)
    task = load_task(name, TOYS)
    ((problem, own),) = chosen_calls(task, str(tmp_path / "mine.npz")).items()
    assert problem.key == key
    recorded = with_calls(task, problem, own).inputs(problem, "own data 0", 0, "cpu")["x"]
    assert recorded.tolist() == arrays["x"].tolist()


def test_a_flag_may_bring_a_buffer_and_is_said_beside_the_file(tmp_path: Path) -> None:
    rows_of = {name: torch.ones(3, 64).half() for name in ("x", "residual")}
    file = written(tmp_path / "mine.npz", {**rows_of, "weight": torch.ones(64).half()})
    task = load_task("rmsnorm")
    with pytest.raises(UsageError, match="rmsnorm reads no residual"):
        chosen_calls(task, file)
    (problem,) = chosen_calls(task, file, flags={"residual": "true"})
    assert problem.key == "rmsnorm rows=3 columns=64 residual=1 gap=0 fp16"


def cut(path: Path, nbytes: int) -> str:
    path.write_bytes(path.read_bytes()[:nbytes])
    return str(path)


def touched(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def pickled(path: Path) -> str:
    np.savez(path, q=np.array([{"a": 1}], dtype=object))
    return str(path)


NAN = call()["v"].clone()
NAN[0, 1, 3, 4] = float("nan")
HOSTILE: dict[str, tuple[Callable[[Path], str], str]] = {
    "a missing buffer": (lambda d: written(d / "a.npz", call(k=None)), "call 0: k is missing"),
    "an unknown buffer": (lambda d: written(d / "a.npz", call(mask=NAN)), "attention reads no mask"),
    "a wrong rank": (lambda d: written(d / "a.npz", call(k=torch.ones(2, 16).half())), "k has 2 dimensions"),
    "a type of no task": (lambda d: written(d / "a.npz", call(dtype=torch.float64)), "q is fp64, and attent"),
    "two types": (lambda d: written(d / "a.safetensors", call(k=NAN.bfloat16())), "k is bf16"),
    "two lengths": (lambda d: written(d / "a.npz", call(v=call(8)["v"])), "L is 16 by q and 8 by v"),
    "an unsupported size": (
        lambda d: written(d / "a.npz", {n: torch.ones(1, 1, 4, 7).half() for n in "qkv"}), "head dimension: 7"
    ),
    "NaN": (lambda d: written(d / "a.npz", call(v=NAN)), "v has NaN or infinity"),
    "infinity": (lambda d: written(d / "a.safetensors", call(v=NAN.nan_to_num(torch.inf))), "v has NaN"),
    "no rows": (lambda d: written(d / "a.npz", call(0)), "q is empty: 1x2x0x32"),
    "no tensors": (lambda d: written(d / "a.npz", said={"a": "b"}), "has no tensors"),
    "an empty file": (lambda d: touched(d / "a.npz", b""), "cannot be read"),
    "another form": (lambda d: touched(d / "a.safetensors", b"x" * 300), "cannot be read"),
    "a cut file": (lambda d: cut(Path(written(d / "a.safetensors", call())), 900), "cannot be read"),
    "a cut archive": (lambda d: cut(Path(written(d / "a.npz", call())), 3000), "cannot be read"),
    "a pickle": (lambda d: pickled(d / "a.npz"), "is a pickle, which evo does not run"),
    "a huge file": (lambda d: huge(d / "a.safetensors"), "GB of 4.3 at most"),
    "another suffix": (lambda d: touched(d / "a.pt", b""), "neither .safetensors nor .npz"),
    "no file": (lambda d: str(d / "a.npz"), "a.npz is not there"),
    "no such call": (lambda d: written(d / "a.npz", call()) + ":3", "has no call 3"),
    "malformed calls": (lambda d: written(d / "a.npz", call()) + ":1,,2", "malformed calls"),
    "mixed names": (lambda d: mixed(d / "a.npz"), "has no call's number"),
    "another task": (lambda d: written(d / "a.npz", call(), said={"task": "gemm"}), "no calls of attention"),
    "a bad flag": (lambda d: written(d / "a.npz", call(), said={"0.causal": "maybe"}), "cannot be maybe"),
    "too many": (lambda d: written(d / "a.npz", *[call()] * (MOST_CALLS + 1)), "9 calls of one problem"),
    "raw bytes": (lambda d: raw_bytes(d / "a.npz"), "a type that numpy does not know"),
}  # fmt: skip


def huge(path: Path) -> str:
    with path.open("wb") as file:
        file.truncate(5 << 30)  # a hole: it takes no space
    return str(path)


def mixed(path: Path) -> str:
    savez(path, {"q": np.ones(3), "0.k": np.ones(3)})
    return str(path)


def raw_bytes(path: Path) -> str:
    """What numpy makes of bf16."""
    np.savez(path, q=np.zeros((1, 1, 4, 32), "V2"))
    return str(path)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_cannot_be_used_is_refused_with_a_sentence(tmp_path: Path, kind: str) -> None:
    make, said = HOSTILE[kind]
    text = make(tmp_path)
    with pytest.raises(UsageError) as caught:
        chosen_calls(ATTENTION, text)
    assert said in caught.value.message
    assert caught.value.hint


def test_values_out_of_a_tasks_range_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "pick"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(
        "from evo import In, Out, Task\n\n\nclass Pick(Task):\n"
        '    name, sizes = "pick", {"rows": 8, "columns": 5}\n'
        '    tensors = {"x": In("rows", "columns"), "at": In("rows", dtype="i64", between=(0, "columns")),'
        ' "y": Out("rows")}\n\n'
        "    def compute(self, problem, t):\n"
        '        return t["x"].gather(1, t["at"][:, None])[:, 0]\n\n\nTASK = Pick()\n'
    )
    arrays = {"x": np.ones((3, 4), np.float32), "at": np.array([0, 4, 1])}
    savez(tmp_path / "a.npz", arrays)
    with pytest.raises(UsageError, match="at is between 0 and 4") as caught:
        chosen_calls(load_task("pick", (tmp_path / "tasks",)), str(tmp_path / "a.npz"))
    assert caught.value.hint == "pick takes at from 0 to 4"


def test_a_call_whose_result_overflows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.full(50, 60000, np.float16))
    with pytest.raises(UsageError, match="x overflows in fp16") as caught:
        chosen_calls(load_task("scale", TOYS), str(tmp_path / "a.npz"))
    assert "scale the inputs" in caught.value.hint


def test_without_the_package_safetensors_npz_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, plain = written(tmp_path / "a.safetensors", call()), written(tmp_path / "a.npz", call())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MachineError, match="needs the package safetensors") as caught:
        chosen_calls(ATTENTION, kept)
    assert "pip install safetensors" in caught.value.hint
    assert chosen_calls(ATTENTION, plain)


# ---------------------------------------------------------------------------------- the engine has them


def own_of(path: Path, *calls: Mapping[str, Tensor]) -> tuple[Any, OwnCalls]:
    file = written(path, *calls)
    return only_problem(file, chosen_calls(ATTENTION, file))


def test_calls_are_families_and_timing_inputs_of_their_problem_alone(tmp_path: Path) -> None:
    problem, own = own_of(tmp_path / "mine.npz", call(), call(v=call()["q"]))
    task = with_calls(ATTENTION, problem, own)
    assert timing_inputs(task, "worst") == (*ATTENTION.timing_inputs, "mine:0", "mine:1")
    assert timing_inputs(task, ranking_named("mine:1", task))[0] == "mine:1"
    with pytest.raises(EvoError, match="unknown ranking"):
        ranking_named("mine:1", ATTENTION)
    device = EmulatorDevice(KNOWN_GPUS["L4"])
    planned = [case.family for case in plan_own(task, problem, 0, device)]
    assert planned[:2] == ["own data 0", "own data 1"]
    assert planned[2:] == [case.family for case in plan_own(ATTENTION, problem, 0, device)]
    assert len(plan_own(task, problem, 0, device, thorough=True)) == 2 + len(
        plan_own(ATTENTION, problem, 0, device, thorough=True)
    )
    assert "own data 0" not in [c.family for c in plan_own(task, problem.replace(L=17), 0, device)]
    first = task.timing_tensors(problem, "mine:1", 0, "cpu")
    first["v"].zero_()  # as a kernel may
    assert torch.equal(task.timing_tensors(problem, "mine:1", 9, "cpu")["v"], call()["q"])
    plain = task.timing_tensors(problem, "sharp", 3, "cpu")["q"]
    assert torch.equal(plain, ATTENTION.timing_tensors(problem, "sharp", 3, "cpu")["q"])


def test_a_share_of_the_problem_has_a_part_of_the_call(tmp_path: Path) -> None:
    tensors = {name: torch.randn(2, 4, 8, 32).half() for name in "qkv"}
    problem, own = own_of(tmp_path / "mine.npz", tensors)
    task = with_calls(ATTENTION, problem, own)
    for heads, part in ((3, tensors["q"][:1, :3]), (6, tensors["q"].reshape(1, 8, 8, 32)[:, :6])):
        share = problem.replace(B=1, H=heads)
        found = with_calls(ATTENTION, problem, own).inputs(share, "own data 0", 0, "cpu")
        assert torch.equal(found["q"], part)
    assert task.own_families(problem.replace(B=1)) == ()


def test_an_evaluator_has_the_calls_and_the_ranking_of_its_study(tmp_path: Path) -> None:
    problem, own = own_of(tmp_path / "mine.npz", call())
    asked = replace(study(), problem=problem, device="emulator", gpu="L4", calls=own, ranking="mean")
    spec = EvaluatorSpec.of(Setup.of(asked, tmp_path))
    assert spec.ranking == "mean"
    assert "mine:0" in spec.program().task.timing_inputs


def test_times_on_other_calls_are_ranked_apart(tmp_path: Path) -> None:
    _, own = own_of(tmp_path / "mine.npz", call())
    with Store(tmp_path / "evo.db", create=True) as store:
        plain, mine = store.create(study("plain-1")), store.create(study("mine-1", calls=own))
        assert store.study("mine-1").calls == own
        assert store.study("plain-1").calls is None
        for kept, median_us in ((plain, 3.0), (mine, 5.0)):
            store.add(kept, 0, timed(1, timing=timing_on({"normal": median_us}, {"flash": 9.0})))
        assert [(row.study, row.rank) for row in store.leaderboard()] == [("plain-1", 1), ("mine-1", 1)]
        assert [row.own_data for row in store.leaderboard()] == ["", own.label]


# ---------------------------------------------------------------------------------- commands


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    """The toy, with three points of a kernel that is wrong where an input is 12345 alone."""
    shutil.copytree(TOYS[0] / "saxpy", tmp_path / "tasks" / "saxpy")
    space = tmp_path / "tasks" / "saxpy" / "saxpy.py"
    space.write_text(space.read_text().replace("[64, 128, 256, 512]", "[64]"))
    kernel = tmp_path / "tasks" / "saxpy" / "saxpy.cu"
    text = kernel.read_text()
    changed, count = re.subn(r"y\[i\] = ", "if (x[i] != 12345.f) y[i] = ", text)
    assert count == 1
    kernel.write_text(changed)
    x = np.linspace(-3, 3, 700, dtype=np.float32)
    np.savez(tmp_path / "honest.npz", x=x, y=x)
    x = x.copy()
    x[321] = 12345
    np.savez(tmp_path / "trap.npz", x=x, y=x)
    return tmp_path


@pytest.mark.nvcc
def test_a_kernel_that_is_wrong_on_the_users_data_alone_is_red(evo: Evo, saxpy: Path) -> None:  # noqa: ARG001
    device = ["--device", "emulator"]
    assert evo("try", "saxpy", "--inputs", "honest.npz", *device).code == 0
    wrong = evo("try", "saxpy", "--inputs", "trap.npz", *device)
    assert wrong.code == 4
    assert "saxpy N=700 fp32 own data 0" in wrong.out
    other = evo("try", "saxpy", "--inputs", "trap.npz", "--shape", "800", *device)
    assert (other.code, other.out) == (2, "")
    assert other.err.startswith("error: trap.npz has no call of 800\nhint: it has saxpy N=700 fp32 (call 0)")


@pytest.mark.nvcc
def test_a_study_finds_its_file_and_loses_nothing_without_it(evo: Evo, saxpy: Path) -> None:
    words = ["--device", "emulator", "--workers", "1", "--seed", "1"]
    begun = evo("search", "saxpy", "--inputs", "honest.npz", "--budget", "5m", *words)
    assert begun.code == 0, begun.err
    assert "saxpy N=700 fp32 and on honest:0" in begun.err
    (kept,) = rows(saxpy, "SELECT calls FROM studies")
    assert json.loads(kept[0])["path"] == str(saxpy / "honest.npz")
    before = rows(saxpy, "SELECT number, outcome FROM trials")
    again = evo("replay", "saxpy-1/0", "--inputs", "trap.npz")
    assert again.code == 4
    assert "own data 0" in again.out

    (saxpy / "honest.npz").rename(saxpy / "moved.npz")
    resume = ["resume", "saxpy-1", "--budget", "+1m"]
    gone = evo(*resume)
    assert gone.code == 2
    assert "the inputs of the study are gone" in gone.err
    assert "hint: name the file as it is now: --inputs FILE (SHA-256" in gone.err
    other = evo(*resume, "--inputs", "trap.npz")
    assert other.code == 2
    assert "is not the file of the study's inputs" in other.err
    with Store(saxpy / "runs" / "evo.db") as store:
        found = located(store.study("saxpy-1"), "moved.npz")
    assert found.calls
    assert (found.calls.path, list(found.calls.names)) == (str(saxpy / "moved.npz"), ["honest:0"])
    assert evo("replay", "saxpy-1/0").code == 2
    assert rows(saxpy, "SELECT number, outcome FROM trials") == before
    assert evo("replay", "saxpy-1/0", "--inputs", "moved.npz").code == 0


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_calls_are_timed_on_a_gpu_and_the_worst_counts(evo: Evo, tmp_path: Path) -> None:
    """One call has scores of deviation 4, which a kernel that guesses pays for."""
    rng = torch.Generator().manual_seed(0)
    plain = {name: torch.randn(1, 8, 512, 64, generator=rng).half() for name in "qkv"}
    file = written(tmp_path / "mine.npz", plain, {**plain, "q": plain["q"] * 4})
    words = ["--template", "flash_wgmma_split", "--budget", "40s", "--study", "mine"]
    done = evo("search", "attention", "--inputs", file, *words, "--json")
    assert done.code == 0, done.err
    (best, *_) = json.loads(done.out)
    assert set(best["times"]) == {*ATTENTION.timing_inputs, "mine:0", "mine:1"}
    assert best["median_us"] == max(time["median_us"] for time in best["times"].values())
    assert best["own_data"]
    timed = evo("replay", f"mine/{best['number']}", "--json")
    assert timed.code == 0, timed.err
    assert {"mine:0", "mine:1"} <= set(json.loads(timed.out)["now"]["timing"]["times"])
    bench = evo("bench", "attention", "--inputs", f"{file}:1", "--trial", f"mine/{best['number']}", "--quick",
                "--json")  # fmt: skip
    assert bench.code == 0, bench.err
    (sheet,) = json.loads(bench.out)
    assert "mine:1" in sheet["standings"][f"mine/{best['number']}"]["times"]
    (tmp_path / "mine.npz").unlink()
    gone = evo("confirm", "mine", "--top", "1")
    assert gone.code == 2
    assert "the inputs of the study are gone" in gone.err
