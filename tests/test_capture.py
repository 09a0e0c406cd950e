"""`evo.capture`: which calls of a running model are recorded, and that the model does not notice."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import ROOT, Evo

import evo
from evo.calls import chosen_calls, read_calls, read_tensors
from evo.errors import BadTemplate, MachineError, UsageError
from evo.task import load_task

ATTENTION = load_task("attention")
attend: Any = torch.nn.functional.scaled_dot_product_attention


def qkv(length: int = 16, dtype: torch.dtype = torch.float16, **changed: Any) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(length)
    shape = changed.get("shape", (1, 2, length, 32))
    return [torch.randn(shape, generator=rng).to(dtype) for _ in "qkv"]


def encoder(layers: int = 2, **more: Any) -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 2, dim_feedforward=64, batch_first=True, **more)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def test_what_was_called_is_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = qkv(16), qkv(24)
    path = tmp_path / "mine.safetensors"
    with evo.capture(path) as seen:
        kept = first[0].clone()
        attend(*first)
        first[0].zero_()  # the model goes on in the same memory
        attend(second[0], second[1], value=second[2], is_causal=True)
    problems = ["attention B=1 H=2 L=16 D=32 causal=0 fp16", "attention B=1 H=2 L=24 D=32 causal=1 fp16"]
    found = chosen_calls(ATTENTION, str(path))
    assert [problem.key for problem in found] == list(seen.kept) == problems
    calls = read_calls(path)
    assert torch.equal(read_tensors(path, calls[0])["q"], kept)
    assert torch.equal(read_tensors(path, calls[1])["v"], second[2])
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"{path}:0  {problems[0]}, of 1 call",
        f"{path}:1  {problems[1]}, of 1 call",
        f"then: evo search attention --inputs {path}:0 --budget 2m",
    ]


@pytest.mark.parametrize("training", [False, True])
def test_a_model_of_torch_is_recorded_and_does_not_notice(tmp_path: Path, training: bool) -> None:
    """In eval mode without gradients its layers have a fast path, which is off meanwhile."""
    model = encoder(dropout=0.0).bfloat16().train(training)
    x = torch.randn(1, 24, 64).bfloat16()
    mask = torch.nn.Transformer.generate_square_subsequent_mask(24, dtype=torch.bfloat16)
    with torch.set_grad_enabled(training):
        expected = model(x), model(x, mask=mask, is_causal=True)
        with evo.capture(tmp_path / "mine.safetensors") as seen:
            found = model(x), model(x, mask=mask, is_causal=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=0.05, rtol=0)
        assert one.requires_grad == training
    assert seen.kept == {f"attention B=1 H=2 L=24 D=32 causal={causal} bf16": 2 for causal in (0, 1)}
    assert not seen.skipped


def test_autocast_decides_the_type(tmp_path: Path) -> None:
    with evo.capture(tmp_path / "mine.safetensors") as seen, torch.autocast("cpu", torch.bfloat16):
        attend(*qkv(dtype=torch.float32))
    assert list(seen.kept) == ["attention B=1 H=2 L=16 D=32 causal=0 bf16"]


@pytest.mark.slow  # torch's compiler takes 5 s to import
def test_calls_of_compiled_code_are_recorded(tmp_path: Path) -> None:
    compiled = torch.compile(lambda q, k, v: attend(q, k, v) * 2, backend="eager")
    with evo.capture(tmp_path / "mine.npz") as seen:
        compiled(*qkv())
        compiled(*qkv())
    assert seen.kept == {"attention B=1 H=2 L=16 D=32 causal=0 fp16": 2}


NAN = qkv()
NAN[1][0, 0, 3, 3] = torch.nan
SKIPPED = {
    "attn_mask is given": lambda: attend(*qkv(), attn_mask=torch.zeros(16, 16).half()),
    "dropout_p is not 0": lambda: attend(*qkv(), dropout_p=0.5),
    "scale is not 1/sqrt(D)": lambda: attend(*qkv(), scale=1.0),
    "fewer heads of keys (enable_gqa)": lambda: attend(
        *qkv()[:1], *(x[:, :1] for x in qkv()[1:]), enable_gqa=True
    ),
    "other numbers of queries and keys": lambda: attend(qkv(8)[0], *qkv()[1:]),
    "q is fp32, and attention takes fp16 or bf16": lambda: attend(*qkv(dtype=torch.float32)),
    "unsupported head dimension: 7": lambda: attend(*qkv(shape=(1, 1, 4, 7))),
    "NaN or infinity": lambda: attend(*NAN),
    "bf16, which .npz has not: write a .safetensors file": lambda: attend(*qkv(dtype=torch.bfloat16)),
    "q is no plain tensor but a Sub": lambda: attend(*(x.as_subclass(Sub) for x in qkv())),
}


class Sub(torch.Tensor):  # type: ignore[misc]
    """A tensor that may mean something else."""


@pytest.mark.parametrize("why", SKIPPED)
def test_what_the_task_cannot_serve_is_skipped_counted_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    with evo.capture(tmp_path / "mine.npz") as seen:
        SKIPPED[why]()
    assert seen.skipped == {why: 1}
    assert not (tmp_path / "mine.npz").exists()
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"no call was recorded: {tmp_path / 'mine.npz'} is not written",
        f"skipped 1 call: {why}",
    ]


def test_of_many_calls_any_may_be_kept_and_memory_has_a_limit(tmp_path: Path) -> None:
    nbytes = 3 * 2 * 16 * 32 * 2
    with evo.capture(tmp_path / "mine.npz", calls_per_shape=3, limit=4 * nbytes) as seen:
        for number in range(40):
            attend(*(torch.full_like(x, number) for x in qkv()))
        for _ in range(2):
            attend(*qkv(17))
    assert list(seen.seen.values()) == [40, 2]
    assert list(seen.kept.values()) == [3]
    assert seen.skipped == {"over the limit of 0 MB": 2}
    path = tmp_path / "mine.npz"
    kept = [int(read_tensors(path, call)["q"][0, 0, 0, 0]) for call in read_calls(path)]
    assert kept == sorted(kept)
    assert kept[-1] > 2, "not the first three"


def test_what_was_recorded_is_kept_where_the_model_fails(tmp_path: Path) -> None:
    def fail() -> None:
        attend(*qkv())
        attend(*qkv()[:2], torch.ones(3))

    with pytest.raises(RuntimeError), evo.capture(tmp_path / "mine.npz"):
        fail()
    assert len(read_calls(tmp_path / "mine.npz")) == 1


def test_what_cannot_be_written_is_said_before_the_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"neither .safetensors nor .npz"):
        evo.capture(tmp_path / "mine.pt")
    with pytest.raises(UsageError, match="there is no folder"):
        evo.capture(tmp_path / "absent" / "mine.npz")
    with pytest.raises(UsageError, match="nothing can be recorded"):
        evo.capture(tmp_path / "mine.npz", calls_per_shape=0)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MachineError, match="needs the package safetensors"):
        evo.capture(tmp_path / "mine.safetensors")


TASK = """from evo import In, Out, Task


def call(input, normalized_shape, weight=None, eps=None):
    return {{"x": input.flatten(0, -2), "weight": weight}}, {{}}


class RmsNorm(Task):
    name, sizes, dtypes = "mine", {{"rows": 64, "columns": 1000}}, ("fp16", "fp32")
    tensors = {{"x": In("rows", "columns"), "weight": In("columns"), "y": Out("rows", "columns")}}
    captures = {{"torch.nn.functional.{function}": call}}

    def compute(self, problem, t):
        return t["x"] * t["weight"]


TASK = RmsNorm()
"""


def test_a_users_task_says_what_is_its_own(tmp_path: Path) -> None:
    """Also a function of torch that is Python; calls of several tasks are in one file."""
    folder = tmp_path / "tasks" / "mine"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(TASK.format(function="rms_norm"))
    path, norm = tmp_path / "mine.npz", torch.nn.RMSNorm(12)
    with evo.capture(path, templates=[folder.parent]) as seen, torch.no_grad():
        norm(torch.randn(2, 3, 12))
        attend(*qkv())
    assert list(seen.kept) == ["mine rows=6 columns=12 fp32", "attention B=1 H=2 L=16 D=32 causal=0 fp16"]
    ((_, own),) = chosen_calls(load_task("mine", (folder.parent,)), str(path)).items()
    assert own.numbers == (0,)
    assert [own.numbers for own in chosen_calls(ATTENTION, str(path)).values()] == [(1,)]
    (folder / "task.py").write_text(TASK.format(function="rms_morn"))
    with pytest.raises(BadTemplate, match="there is no function"):
        evo.capture(path, templates=[folder.parent])


# ---------------------------------------------------------------------------------- the page on your own data


PAGE = (ROOT / "docs" / "your-own-data.md").read_text()
RECORD, WRITE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = dict(re.findall(r"^evo (\w+) (attention.*)$", PAGE, re.MULTILINE))


@pytest.mark.usefixtures("evo")  # an empty folder
def test_the_snippets_of_the_page_on_your_own_data_run(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(RECORD, "record.py", "exec"), {})
    said = capsys.readouterr().err.splitlines()[0]
    assert said in PAGE
    exec(compile(WRITE, "write.py", "exec"), {})
    for file, key in (("calls.safetensors", "L=48 D=32 causal=0"), ("mine.npz", "L=48 D=32 causal=1")):
        (problem,) = chosen_calls(ATTENTION, file)
        assert key in problem.key
    assert np.load("mine.npz")["causal"]


@pytest.mark.nvcc
@pytest.mark.slow  # a search of half a minute
def test_the_commands_of_the_page_on_your_own_data_run(evo: Evo) -> None:
    """Those that need no GPU."""
    exec(compile(RECORD, "record.py", "exec"), {})
    assert list(COMMANDS) == ["search", "try", "replay", "bench"]
    tried = evo("try", *COMMANDS["try"].split(), "--device", "emulator", "--json")
    assert tried.code == 0, tried.err
    families = {case["family"] for case in json.loads(tried.out)["errors"]}
    assert {f for f in families if f.startswith("own data")} == {"own data 0", "own data 2"}
    words = ["--device", "emulator", "--workers", "1", "--budget", "30s", "--template", "scalar"]
    found = evo("search", *COMMANDS["search"].split(), *words)
    assert found.code == 0, found.err
    again = evo("replay", *COMMANDS["replay"].split())
    assert again.code == 0, again.err
