"""Tasks: problems by text, inputs by seed, a reference that agrees with torch, work and traffic."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from host_kernels import HostDevice

from evo.errors import BadTemplate, UnknownName, UsageError
from evo.gate import plan_own
from evo.task import Tunable, list_tasks, load_task
from evo.trial import Problem

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
SMALL = TASK.problem("2,3,70,64", "fp16")


def test_attention_is_found_and_others_are_not() -> None:
    assert "attention" in list_tasks()
    for name in ("attentoin", "../attention", "include", ""):
        with pytest.raises(UnknownName):
            load_task(name)


def test_a_task_file_without_a_task_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/task.py").write_text("x = 1\n")
    with pytest.raises(BadTemplate, match=r"task\.py:1: defines no TASK"):
        load_task("empty", (tmp_path,))
    (tmp_path / "empty/task.py").write_text("x = 1\ny = x +\n")
    with pytest.raises(BadTemplate, match=r"task\.py:2: "):
        load_task("empty", (tmp_path,))


def test_the_named_problems() -> None:
    assert [p.key for p in TASK.problems["mission"]] == ["attention B=1 H=8 L=512 D=64 causal=0 fp16"]
    assert TASK.example is TASK.problems["mission"][0]
    assert sorted({p["L"] for p in TASK.problems["seeds"]}) == [128, 256, 512, 1024, 2048]
    assert {p["causal"] for p in TASK.problems["seeds"]} == {False, True}


def test_shapes_are_parsed() -> None:
    assert TASK.problem("1, 8,512,64") == TASK.example
    causal = TASK.problem("1,8,512,64", "bf16", causal=True)
    assert TASK.problem("L=77, B=2").shape == "2,8,77,64"  # the others as in the example
    assert causal.key == "attention B=1 H=8 L=512 D=64 causal=1 bf16"


@pytest.mark.parametrize(
    "shape",
    ["", "1,8,512", "1,8,512,64,1", "1,8,512,65", "0,8,512,64", "1,8,-5,64", "a,b,c,d", "1,8,0,64",
     "1,8,5e2,64", "9999999,9999,9999999,64", "1,8,512,64;", "1,8,٣,64"],
)  # fmt: skip
def test_malformed_shapes_are_refused(shape: str) -> None:
    with pytest.raises(UsageError) as caught:
        TASK.problem(shape)
    assert caught.value.hint


def test_unknown_dtypes_flags_and_families_are_refused() -> None:
    with pytest.raises(UsageError, match="dtype"):
        TASK.problem("1,8,512,64", "fp8")
    with pytest.raises(UsageError, match="window"):
        TASK.problem("1,8,512,64", window=3)
    with pytest.raises(UsageError, match="family"):
        TASK.inputs(SMALL, "weird", 0, "cpu")


def test_inputs_follow_the_seed() -> None:
    for family in TASK.families.names:
        one, same, other = (TASK.inputs(SMALL, family, seed, "cpu") for seed in (3, 3, 4))
        assert set(one) == {"q", "k", "v"}
        for name in one:
            assert one[name].shape == (2, 3, 70, 64)
            assert one[name].dtype == torch.float16
            assert one[name].is_contiguous()
            assert one[name].isfinite().all()
            assert torch.equal(one[name], same[name])
        assert not torch.equal(one["v"], other["v"])


def _scores(problem: Problem, family: str) -> torch.Tensor:
    inputs = TASK.inputs(problem, family, 1, "cpu")
    return inputs["q"].double() @ inputs["k"].double().transpose(-1, -2) / math.sqrt(problem["D"])


@pytest.mark.parametrize("tile", [(32, 32), (64, 64), (128, 64), (128, 128)])
def test_a_finalist_meets_a_lone_key_at_every_pair_of_a_row_and_a_key_of_a_tile(
    tile: tuple[int, int],
) -> None:
    problem = TASK.problem("1,8,512,64")
    rows, keys = tile
    cases = [c for c in plan_own(TASK, problem, 7, HostDevice(), tile, True) if c.family == "spike"]
    met = torch.zeros(tile, dtype=torch.bool)
    for case in cases:
        k = TASK.inputs(problem, "spike", case.seed, "cpu")
        key = (k["q"].float() @ k["k"].float().transpose(-1, -2)).argmax(-1)
        assert all(head.unique().numel() == 512 for head in key[0]), "each key is some row's own"
        met[torch.arange(512).expand(key.shape) % rows, key % keys] = True
    assert met.all()


@pytest.mark.parametrize("tile", [32, 64, 128])
def test_a_finalist_meets_a_maximum_that_moves_in_every_tile_while_older_keys_count(tile: int) -> None:
    """Sums that are rescaled twice in one tile, for one query, show at one of the three seeds."""
    problem = TASK.problem("1,2,512,64")
    cases = [c for c in plan_own(TASK, problem, 12, HostDevice(), (64, 64), True) if c.family == "ascending"]
    moved = torch.zeros(len(cases), 2, 512, 512 // tile - 1)
    for shown, case in zip(moved, cases, strict=True):
        x = {
            name: tensor[0].double()
            for name, tensor in TASK.inputs(problem, "ascending", case.seed, "cpu").items()
        }
        scores = x["q"] @ x["k"].transpose(-1, -2) / 8
        weights, so_far = scores.softmax(-1), scores.unflatten(-1, (-1, tile)).amax(-1).cummax(-1).values
        kept = (so_far[..., :-1] - so_far[..., 1:]).exp()
        for before in range(512 // tile - 1):
            older = slice(0, (before + 1) * tile)
            lost = (1 - kept[..., before, None]) * (weights[..., older] @ x["v"][:, older])
            shown[..., before] = lost.norm(dim=-1) / (weights @ x["v"]).norm(dim=-1)
    assert moved.amax(0).min() > 3 * torch.finfo(torch.float16).eps / 2


def test_families_are_what_they_say() -> None:
    problem = TASK.problem("1,4,200,64")
    assert _scores(problem, "normal").std() == pytest.approx(1, abs=0.1)
    assert _scores(problem, "peaky")[:, :, :3].std(-1).mean() == pytest.approx(4, abs=0.4)
    assert _scores(problem, "large_logits").abs().mean() == pytest.approx(80, abs=5)
    away = torch.arange(200) % 4 == 3
    climbing = _scores(problem, "ascending")
    up, slow, down = (climbing[:, :, (torch.arange(200) + 1) % 3 == turn] for turn in range(3))
    assert (up.argmax(-1) > 150).double().mean() > 0.9
    assert (slow.argmax(-1) > 150).double().mean() > 0.9
    assert (down.argmax(-1) < 50).double().mean() > 0.9
    assert up.amax() > 90
    assert (slow.softmax(-1)[..., :100].sum(-1) - 0.5**2.5).abs().max() < 0.05, "half of the keys still count"
    ends = torch.tensor([0, 199, 0, 199])[:, None]  # of four heads, at seed 1
    assert (_scores(problem, "huge_end")[0, :, ~away].argmax(-1) == ends).double().mean() > 0.9
    assert 0 < TASK.inputs(problem, "tiny", 0, "cpu")["v"].abs().max() < 2**-9
    spike = _scores(problem, "spike").sort(-1).values
    assert (spike[..., -1] - spike[..., -2]).min() > 100
    assert _scores(problem, "spike").argmax(-1).unique().numel() == 200
    assert -1100 < spike[:, :, away][..., -1].max() < -950
    outgrown = _scores(problem, "outgrown")
    growth = (outgrown.amax(-1) - outgrown[:, :, :, 0]) / math.log(2)  # key 0 is an anchor
    most = torch.arange(200) % 16 == torch.arange(200) // 16 * 7 % 16
    assert (growth[:, :, most] > 0).double().mean() > 0.9, "an anchor may be a query's own key"
    assert torch.exp2(growth[:, :, most]).max() < 65536
    assert torch.exp2(growth[:, :, most]).half().isinf().double().mean() > 0.9
    weights = torch.exp2(growth[:, :, ~most & (torch.arange(200) % 2 == 1)])
    assert ((weights - 128.12125).abs() < 0.01).double().mean() > 0.9, "128.125 less 0.03 units of rounding"
    equal = _scores(problem, "equal_keys")
    assert torch.equal(equal, equal[..., :1].expand_as(equal))
    assert TASK.inputs(problem, "offset_v", 0, "cpu")["v"].double().mean() == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("d", [32, 64, 96, 128])
def test_every_family_keeps_its_ranges_at_every_size(d: int, dtype: str, causal: bool) -> None:
    assert set(TASK.ranges) == set(TASK.families.names), "every family promises something"
    for length, seed in ((1, 0), (2, 1), (17, 2), (64, 3), (200, 4)):
        problem = TASK.problem(f"1,2,{length},{d}", dtype, causal=causal)
        for family in TASK.families.names:
            inputs = TASK.inputs(problem, family, seed, "cpu")
            assert all(tensor.isfinite().all() for tensor in inputs.values())
            measured = TASK.measures(problem, inputs)
            for name, (low, high) in TASK.ranges[family].items():
                assert low <= measured[name] <= high, f"{name} of {family} at {problem.key}"


def test_the_largest_values_overflow_sums_in_half() -> None:
    problem = TASK.problem("1,1,96,64")
    inputs = TASK.inputs(problem, "large", 3, "cpu")
    q, k, v = (inputs[name][0, 0].double() for name in "qkv")
    products = q @ k.T
    assert products.amax(-1)[::2].min() > 65504 * 1.2
    weights = (products / 8 - products.amax(-1, keepdim=True) / 8).exp()
    assert (weights @ v).abs().amax(-1)[1::2].min() > 65504, "without the denominator"
    assert TASK.reference(problem, inputs)["o"].abs().max() < 65504


@pytest.mark.parametrize("length", [15, 47, 95, 255])
@pytest.mark.parametrize("family", TASK.families.names)
def test_a_padding_key_shows_in_every_family(family: str, length: int) -> None:
    """Its score and its value are 0: what it takes from the others is its weight."""
    for seed in range(8):
        inputs = TASK.inputs(TASK.problem(f"1,1,{length},64"), family, seed, "cpu")
        scores = inputs["q"].double() @ inputs["k"].double().transpose(-1, -2) / 8
        padding = torch.nn.functional.pad(scores, (0, 1)).softmax(-1)[..., -1]
        assert padding.max() > (1e-3 if family == "normal" else 0.1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("family", TASK.families.names)
def test_the_reference_agrees_with_torch_in_fp64(family: str, dtype: str, causal: bool) -> None:
    problem = TASK.problem("2,3,70,64", dtype, causal=causal)
    inputs = TASK.inputs(problem, family, 7, "cpu")
    out = TASK.reference(problem, inputs)["o"]
    q, k, v = (inputs[name].double() for name in "qkv")
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert out.dtype == torch.float64
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    honest = TASK.honest(problem, inputs)["o"]
    assert honest.dtype == inputs["q"].dtype
    relative = (honest.double() - out).norm(dim=-1) / out.norm(dim=-1)
    assert relative.max() < {"fp16": 2e-3, "bf16": 1.6e-2}[dtype]


def test_the_reference_does_not_depend_on_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = TASK.problem("1,2,100,32", causal=True)
    inputs = TASK.inputs(problem, "peaky", 0, "cpu")
    whole = TASK.reference(problem, inputs)["o"]
    module = __import__("sys").modules[type(TASK).__module__]
    monkeypatch.setattr(module, "REFERENCE_BYTES", 8 * 2 * 100 * 7)
    assert torch.equal(TASK.reference(problem, inputs)["o"], whole) or torch.allclose(
        TASK.reference(problem, inputs)["o"], whole, rtol=1e-13, atol=1e-14
    )


def test_a_tunable_baseline_is_the_variant_that_was_chosen() -> None:
    tunable = Tunable({"a": lambda _: "a", "b": lambda _: "b"})
    assert (tunable.chosen, tunable({})) == (None, "a")
    tunable.choose("b")
    assert (tunable.chosen, tunable({})) == ("b", "b")
    with pytest.raises(KeyError):
        tunable.choose("c")


FLASH_ATTENTION = """
import torch
from host_kernels import HostDevice

def flash_attn_func(q, k, v, causal=False):
    assert q.shape[2] == 2, "heads are third"
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
    return {returned}
"""
FLASHINFER = """
import torch
from host_kernels import HostDevice

def single_prefill_with_kv_cache(q, k, v, causal=False):
    assert q.shape[1] == 2, "heads are second"
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(0, 1)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that can be imported while a test runs."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("flash"):
            del sys.modules[name]


def test_what_is_installed_takes_part(packages: Path) -> None:
    """Packages in the places and with the signatures of flash-attn 3 and 4 and of FlashInfer; flash-attn 4
    lies in a folder that flash-attn 2 also has, and is not taken for it."""
    files = {
        "flash_attn/cute/__init__.py": FLASH_ATTENTION.format(returned="o, None"),
        "flash_attn_interface.py": FLASH_ATTENTION.format(returned="o"),
        "flashinfer/__init__.py": FLASHINFER,
    }
    for name, text in files.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    problem = TASK.problem("1,2,40,64", causal=True)
    baselines = TASK.baselines(problem, "cpu", patient=True)
    assert {"flash-attn-3", "flash-attn-4", "flashinfer"} <= set(baselines)
    assert "flash-attn" not in baselines
    inputs = TASK.inputs(problem, "normal", 0, "cpu")
    expected = TASK.reference(problem, inputs)["o"]
    for name in ("flash-attn-3", "flash-attn-4", "flashinfer"):
        out = baselines[name](inputs)
        assert out.shape == expected.shape
        assert (out.double() - expected).abs().max() < 5e-3, name
    two = TASK.baselines(problem.replace(B=2), "cpu", patient=True)
    assert "flash-attn-4" in two
    assert "flashinfer" not in two  # it is for one sequence


@pytest.mark.parametrize(
    ("name", "module"),
    [("flash-attn", "flash_attn/__init__.py"), ("flash-attn-3", "flash_attn_interface.py")],
)
def test_a_package_that_cannot_be_imported_is_told(packages: Path, name: str, module: str) -> None:
    (packages / module).parent.mkdir(exist_ok=True)
    (packages / module).write_text("raise ImportError('undefined symbol: _ZN3c10')")
    run = TASK.baselines(TASK.example, "cpu", patient=True)[name]
    with pytest.raises(RuntimeError, match="ImportError: undefined symbol"):
        run(TASK.inputs(TASK.example, "normal", 0, "cpu"))


def test_baselines_compute_attention() -> None:
    problem = TASK.problem("1,2,100,64", causal=True)
    baselines = TASK.baselines(problem, "cpu")
    assert {"sdpa", "math", "hybrid"} <= set(baselines)
    assert "cudnn" not in baselines  # it needs a GPU
    inputs = TASK.inputs(problem, "normal", 0, "cpu")
    expected = TASK.reference(problem, inputs)["o"]
    for name, run in baselines.items():
        assert (run(inputs).double() - expected).abs().max() < 5e-3, name


def test_work_and_traffic() -> None:
    assert TASK.flop(TASK.example) == 4 * 8 * 512 * 512 * 64
    assert TASK.nbytes(TASK.example) == 4 * 8 * 512 * 64 * 2
    causal = TASK.problem("1,1,3,32", causal=True)
    assert TASK.flop(causal) == 4 * 32 * (1 + 2 + 3)
    assert [(b.name, b.role) for b in TASK.buffers(causal)] == [
        ("q", "in"),
        ("k", "in"),
        ("v", "in"),
        ("o", "out"),
    ]


def test_gate_problems_lie_around_the_tiles() -> None:
    lengths = [p["L"] for p in TASK.gate_problems(TASK.example, (64, 128))]
    assert {1, 63, 64, 65, 127, 128, 129} <= set(lengths)
    assert len(set(lengths)) == len(lengths)
    for problem in TASK.gate_problems(TASK.problem("4,16,100,96", "bf16", causal=True), (32,)):
        assert (problem["D"], problem["causal"], problem.dtype) == (96, True, "bf16")
        assert problem["B"] * problem["H"] == 2  # a last head can be forgotten
    assert TASK.gate_problems(TASK.example, ())
    assert all(p["L"] >= 1 for p in TASK.gate_problems(TASK.example, (2, 1, 0)))
