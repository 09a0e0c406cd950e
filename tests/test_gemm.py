"""The task of matrix products: inputs and tolerances that are as promised, sizes that the gate tries, and its
simplest template."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from test_cuda import needs_gpu

from evo.errors import Red
from evo.gate.tolerance import compare, errors_of, limits_of
from evo.gpu import Limits, target
from evo.task import Task, load_module, load_task
from evo.template import load_template
from evo.testing import TaskTests, TemplateTests
from evo.trial import Problem, Value

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

GEMM = load_task("gemm")
GEMM_FOLDER = Path(__file__).parents[1] / "templates" / "gemm"


class TestGemm(TaskTests):
    task = "gemm"
    largest_flop = 2e6


@pytest.mark.nvcc
class TestScalar(TemplateTests):
    task, template, problems, points = "gemm", "scalar", ("70,72,40,1",), 0


def problem(shape: str, dtype: str = "bf16", **flags: object) -> Problem:
    return GEMM.problem(shape, dtype, **flags)


@pytest.mark.parametrize("depth", [1, 3, 64, 2048, 7168, 57344, 262144])
@pytest.mark.parametrize("epilogue", ["none", "scale"])
def test_timing_inputs_of_fp16_are_of_any_depth_and_their_sums_fit(depth: int, epilogue: str) -> None:
    """With exponents from -8 to 8 sums of `wide` overflowed, and right kernels were RED after timing."""
    at = problem(f"32,64,{depth},1", "fp16", epilogue=epilogue)
    for name in GEMM.timing_inputs:
        inputs = GEMM.timing_tensors(at, name, 2, "cpu")
        assert GEMM.honest(at, inputs)["c"].isfinite().all(), name
        assert inputs["b"].abs().float().median() > 2**-6, "most elements are normal numbers"


def part_of_limit(at: Problem, out: torch.Tensor, family: str) -> float:
    """The worst error as a part of its limit."""
    inputs = GEMM.inputs(at, family, 1, "cpu")
    limits = limits_of(GEMM.reference(at, inputs)["c"], GEMM.honest(at, inputs)["c"], GEMM.tolerance)
    row, row_limit, element, element_limit = errors_of(out, limits).tolist()
    return float(max(row / row_limit, element / element_limit if element_limit else 0.0))


def tensor_core_sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sums as Tensor Cores make them: 16 terms at once, cut off to fp32 after each such step."""
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=torch.float64)
    for first in range(0, a.shape[-1], 16):
        total += a[..., first : first + 16] @ b[..., first : first + 16, :]
        mantissa, exponent = torch.frexp(total)
        total = torch.ldexp((mantissa * 2**24).trunc() / 2**24, exponent)
    return total


@pytest.mark.parametrize("family", GEMM.families.names)
@pytest.mark.parametrize("depth", [64, 1024, 8192])
def test_sums_that_are_cut_off_pass_and_sums_in_fp16_do_not(family: str, depth: int) -> None:
    at = problem(f"16,24,{depth},1", "fp16", out="fp32")
    inputs = GEMM.inputs(at, family, 1, "cpu")
    a, b = inputs["a"].double(), inputs["b"].mT.double()
    assert part_of_limit(at, tensor_core_sums(a, b).float(), family) < 0.7
    total = torch.zeros(1, 16, 24, dtype=torch.float16)
    for first in range(0, depth, 16):
        total = total + (a[..., first : first + 16] @ b[..., first : first + 16, :]).half()
    if family not in ("zeros", "integers"):  # those are exact in fp16, too, while they are small
        exact = GEMM.reference(at, inputs)
        with pytest.raises(Red):
            compare("c", total.float(), exact["c"], GEMM.honest(at, inputs)["c"], GEMM.tolerance)


def test_the_tolerance_grows_with_the_root_of_k() -> None:
    def limit(depth: int) -> float:
        at = problem(f"64,64,{depth},1", out="fp32")
        inputs = GEMM.inputs(at, "normal", 1, "cpu")
        honest = GEMM.honest(at, inputs)["c"]
        return float(limits_of(GEMM.reference(at, inputs)["c"], honest, GEMM.tolerance).row_limit)

    # u (√K + K / 32) times the largest sum on the way, which is about twice the last one
    for depth in (256, 1024, 4096):
        unit = 2.0**-24 * (math.sqrt(depth) + depth / 32)
        assert 1.5 * unit < limit(depth) < 6 * unit


def test_a_lost_term_is_beyond_the_line() -> None:
    for dtype, out in (("bf16", "same"), ("fp16", "fp32")):
        at = problem("40,40,512,1", dtype, out=out)
        for family in ("normal", "peaky", "offset", "growing", "cancelling", "large"):
            inputs = GEMM.inputs(at, family, 1, "cpu")
            lost = dict(inputs)
            lost["a"] = inputs["a"].clone()
            lost["a"][..., 496:512] = 0  # a step of the Tensor Cores
            out_lost = GEMM.reference(at, lost)["c"].to(GEMM.honest(at, inputs)["c"].dtype)
            assert part_of_limit(at, out_lost, family) > 2, family


def test_the_plan_of_the_gate_keeps_what_divides_rows() -> None:
    vectors = load_module(GEMM_FOLDER / "call.py").vectors
    for shape, layout in (
        ("100,96,264,1", "NT"),
        ("104,100,33,1", "TN"),
        ("7,6,5,2", "NN"),
        ("9,1,1,1", "NT"),
    ):
        own = problem(shape, layout=layout)
        tiles = (64, 128)
        for at in (
            *GEMM.gate_problems(own, tiles),
            *GEMM.piece_problems(own, tiles),
            *GEMM.ragged_problems(own, tiles, far=True),
            *GEMM.some_ragged(own, tiles, 24, 5, deep=True),
        ):
            assert vectors(at) == vectors(own), at.key


def test_every_remainder_of_each_size_is_among_the_problems_of_finalists() -> None:
    own = problem("4096,4096,4096,1", layout="TN")
    found = GEMM.ragged_problems(own, (64, 128))
    assert {at["K"] % 64 for at in found} == set(range(64))
    assert {at["N"] % 128 for at in found} >= set(range(0, 128, 8))


def test_a_share_has_fewer_tiles_and_the_same_depth() -> None:
    own = problem("1000,2000,512,1")
    for part in (0.0, 0.1, 0.5):
        at = GEMM.share(own, part)
        assert at["K"] == 512
        assert at["M"] % 256 == 1000 % 256
        assert at["N"] % 256 == 2000 % 256
        assert GEMM.flop(at) <= max(part, 1 / 32) * 1.5 * GEMM.flop(own)
    assert GEMM.share(problem("64,64,64,8"), 0.5)["batch"] == 4


@pytest.mark.parametrize("layout", ["NT", "NN", "TN"])
@pytest.mark.parametrize("epilogue", ["none", "bias", "bias_gelu", "bias_silu", "residual", "scale"])
def test_torch_is_within_the_line(layout: str, epilogue: str) -> None:
    at = problem("33,40,136,2", "bf16", layout=layout, epilogue=epilogue, gap=8)
    inputs = GEMM.inputs(at, "normal", 1, "cpu")
    for run in GEMM.baselines(at, "cpu").values():
        assert part_of_limit(at, run(inputs), "normal") < 1.2  # an epilogue by itself rounds twice


@needs_gpu
@pytest.mark.parametrize("layout", ["NT", "NN", "TN"])
@pytest.mark.parametrize("out", ["same", "fp32"])
@pytest.mark.parametrize("batch", [1, 2])
def test_cublaslt_is_within_the_line(layout: str, out: str, batch: int) -> None:
    pytest.importorskip("nvmath")
    at = problem(f"128,192,256,{batch}", layout=layout, out=out)
    inputs = GEMM.inputs(at, "normal", 1, "cpu")
    tunable = GEMM.baselines(at, "cuda", patient=True)["cublaslt"]
    c = tunable({name: tensor.cuda() for name, tensor in inputs.items()})
    assert part_of_limit(at, c.cpu(), "normal") < 1


@pytest.mark.nvcc
@pytest.mark.slow  # a second each
@pytest.mark.parametrize(
    ("shape", "dtype", "flags"),
    [
        ("33,77,100,2", "bf16", {"epilogue": "bias_gelu", "layout": "TN", "gap": 1, "out": "fp32"}),
        ("1,1,1,1", "fp16", {"epilogue": "residual", "layout": "NN"}),
        ("64,8,1000,1", "fp16", {"epilogue": "scale", "gap": 64}),
        ("9,130,50,3", "bf16", {"epilogue": "bias_silu", "layout": "NN", "out": "fp32"}),
    ],
)
def test_every_kind_of_problem_is_served(shape: str, dtype: str, flags: dict[str, object]) -> None:
    gate_one("scalar", problem(shape, dtype, **flags))


def gate_one(name: str, at: Problem, **changes: Value) -> None:
    """The template's first point, with changes, through the gate on the emulator."""
    from evo.cache import default_folder
    from evo.evaluate import EvaluatorSpec

    task: Task = GEMM
    template, limits = load_template(task, name), Limits.of(target("sm_90a"))
    point = {**template.space.default_for(at, limits), **changes}
    assert template.space.why_not(point, limits, at) is None
    evaluator = EvaluatorSpec("gemm", "emulator", limits.gpu, limits, default_folder()).build()
    try:
        evaluator.gate(template.candidate(point, at), 0, thorough=False)
    finally:
        evaluator.close()
