"""The gate: honest kernels are GREEN, planted wrong ones RED for the right reason, and no check is idle."""

from __future__ import annotations

import copy
import ctypes
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
import torch

from evo.device import LaunchReport, Region
from evo.errors import Infeasible, Red
from evo.gate import Case, Green, case_seed, check, plan_boundary, plan_own, plan_ragged
from evo.gate.arena import GUARD_BYTES, Arena
from evo.gate.judging import ROW_FLOOR, SMALL_FLOOR, SMALL_ROWS, judge
from evo.gpu import Gpu, target
from evo.ptxas import module_state
from evo.task import load_task
from evo.trial import Binary, BufferArg, LaunchConfig, Problem, Resources, Workspace

torch.set_num_threads(1)  # small tensors: more threads only wait for each other

TASK = load_task("attention")
SMALL = TASK.problem("1,2,96,64")
TILES = (32, 64)

Memory = Mapping[str, torch.Tensor]
Program = Callable[[Memory, Problem, int], None]
"""What a host kernel does with its buffers: (buffers, problem, number of launches before)."""


@dataclass
class HostKernel:
    """A kernel that is a function of this process: it gets the very memory that the gate laid out."""

    program: Program
    problem: Problem
    before: list[int]
    schedules: list[str]
    ptx: str = ""

    @property
    def binary(self) -> Binary:
        resources = Resources(32, 0, 0, 0)
        return Binary(b"", self.ptx, "k", "sm_80", "none", resources, "", 0.0, module_state(self.ptx))

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[self.problem.dtype]
        memory = {}
        for arg in launch.args:
            assert isinstance(arg, BufferArg)
            region = regions[arg.buffer]
            # a guard's width more on both sides: a wrong kernel may leave its buffer
            raw = (ctypes.c_char * (region.nbytes + 2 * GUARD_BYTES)).from_address(
                region.address - GUARD_BYTES
            )
            kind = dtype if arg.buffer in "qkvo" else torch.int32
            memory[arg.buffer] = torch.frombuffer(raw, dtype=kind)
        self.schedules.append(schedule)
        self.program(memory, self.problem, self.before[0])
        self.before[0] += 1
        return LaunchReport(schedule, 0.0, {"instructions": TASK.flop(self.problem) / 1000})


@dataclass
class HostDevice:
    """Runs host kernels. Its schedules change nothing by themselves; a program may look at them."""

    kind: Literal["cuda", "emulator"] = "emulator"
    name: str = "host"
    gpu: Gpu = field(default_factory=lambda: target("sm_89"))
    torch_device: str = "cpu"
    schedules: tuple[str, ...] = ("default", "late", "reversed")

    def load(self, binary: Binary, launch: LaunchConfig) -> HostKernel:
        raise NotImplementedError("host kernels are made by hand")

    def close(self) -> None: ...


def inside(whole: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The buffer itself, (B, H, L, D), without the guards around it."""
    guard = GUARD_BYTES // whole.element_size()
    return whole[guard:-guard].view(tuple(problem.sizes.values()))


def honest(memory: Memory, problem: Problem, _before: int = 0) -> None:
    inputs = {name: inside(memory[name], problem) for name in "qkv"}
    inside(memory["o"], problem).copy_(TASK.honest(problem, inputs)["o"])


def verdict(
    program: Program, problem: Problem = SMALL, *, seed: int = 1, deterministic: bool = True, ptx: str = "",
    workspaces: tuple[Workspace, ...] = (), device: HostDevice | None = None, seen: list[str] | None = None,
    only: set[int] | None = None, thorough: bool = False,
) -> Green:  # fmt: skip
    before = [0]
    args = tuple(BufferArg(name) for name in (*"qkvo", *(w.name for w in workspaces)))
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, args, workspaces=workspaces)

    def kernel_for(at: Problem) -> tuple[HostKernel, LaunchConfig]:
        if only is not None and at["L"] not in only:
            raise Infeasible("fixed length")
        return HostKernel(program, at, before, [] if seen is None else seen, ptx), launch

    return check(
        kernel_for,
        device or HostDevice(),
        TASK,
        problem,
        TILES,
        seed=seed,
        deterministic=deterministic,
        thorough=thorough,
    )


# ------------------------------------------------------------------------------------------- honest kernels


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_honest_kernel_is_green(dtype: str, causal: bool) -> None:
    problem = TASK.problem("1,2,96,64", dtype, causal=causal)
    green = verdict(honest, problem)
    assert green.problem == problem
    assert green.report.schedule == "default"
    assert all(0 <= e.row_error <= e.limit < 0.02 for e in green.errors)
    assert {e.family for e in green.errors} == set(TASK.families)
    assert {f"L={n} " in " ".join(e.problem for e in green.errors) for n in (1, 31, 65, 96)} == {True}
    assert green.launches > len(green.errors)


def flash(memory: Memory, problem: Problem, *, tile: int, **change: Any) -> None:
    """Online softmax over key tiles, as a kernel does it; `change` plants an error."""
    dtype = memory["o"].dtype
    q, k, v = (inside(memory[name], problem).float() for name in "qkv")
    length = problem["L"]
    scale = change.get("scale", 1.0) * math.log2(math.e) / math.sqrt(problem["D"])
    top = torch.full((*q.shape[:-1], 1), -1e30)
    total, acc = torch.zeros_like(top), torch.zeros_like(q)
    rows = torch.arange(length)[:, None] + change.get("diagonal", 0)
    padding = change.get("padding", 0)
    if padding:
        k, v = (torch.nn.functional.pad(t, (0, 0, 0, padding)) for t in (k, v))
    end = length + padding - change.get("drop_keys", 0)
    for start in range(0, end, tile):
        if start == change.get("drop_tile"):
            continue
        stop = min(start + tile, end)
        scores = q @ k[:, :, start:stop].transpose(-1, -2)
        if change.get("half_scores"):
            scores = scores.to(dtype).float()
        scores = scores * scale
        if problem["causal"]:
            scores = scores.masked_fill(torch.arange(start, stop) > rows, -math.inf)
        higher = (
            top if change.get("no_maximum") and start else torch.maximum(top, scores.amax(-1, keepdim=True))
        )
        keep = torch.exp2(top - higher)
        weights = torch.exp2(scores - higher)
        top = higher
        total = total * keep + weights.sum(-1, keepdim=True)
        if change.get("fp8"):
            weights = weights.to(torch.float8_e4m3fn).float()
        elif change.get("round", True):
            weights = weights.to(dtype).float()
        acc = (acc if change.get("no_rescale") else acc * keep) + weights @ v[:, :, start:stop]
        if change.get("half_sums"):
            acc = acc.to(dtype).float()
    out = (acc / total * change.get("gain", 1.0)).to(dtype)
    inside(memory["o"], problem).copy_(out)


@pytest.mark.parametrize("tile", [16, 32, 128])
@pytest.mark.parametrize("precise", [False, True])
def test_tilings_and_precise_weights_are_green(tile: int, precise: bool) -> None:
    for causal in (False, True):
        problem = TASK.problem("1,2,96,64", causal=causal)
        verdict(lambda m, p, _n: flash(m, p, tile=tile, round=not precise), problem)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_no_false_alarm_over_many_seeds(dtype: str, dim: int, causal: bool) -> None:
    problem = TASK.problem(f"1,2,96,{dim}", dtype, causal=causal)
    for seed in range(40):
        tile = (16, 32, 64, 128)[seed % 4]
        verdict(lambda m, p, _n, t=tile: flash(m, p, tile=t), problem, seed=seed)  # type: ignore[misc]


# -------------------------------------------------------------------------------------------- wrong numbers

WRONG_NUMBERS: dict[str, dict[str, Any]] = {
    "scale 2 % off": {"scale": 1.02},
    "last key dropped": {"drop_keys": 1},
    "second tile dropped": {"drop_tile": 32},
    "one padding key unmasked": {"padding": 1},
    "padding to the tile unmasked": {"padding": 17},
    "P in fp8": {"fp8": True},
    "scores in half precision": {"half_scores": True},
    "O not rescaled": {"no_rescale": True},
    "maximum of the first tile only": {"no_maximum": True},
    "output 0.2 % too large": {"gain": 1.002},
}
CAUSAL_NUMBERS: dict[str, dict[str, Any]] = {
    "mask one key too wide": {"diagonal": 1},
    "mask one key too narrow": {"diagonal": -1},
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_arithmetic_is_red(name: str) -> None:
    with pytest.raises(Red) as caught:
        verdict(lambda m, p, _n: flash(m, p, tile=32, **WRONG_NUMBERS[name]))
    assert caught.value.reason in ("row error", "Inf in the output", "NaN in the output")


@pytest.mark.parametrize("seed", range(8))
def test_a_padding_key_at_one_boundary_length_is_red_whatever_the_seed(seed: int) -> None:
    """A gate whose lengths meet one family each let 1 of 14 such kernels through."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        flash(memory, problem, tile=32, padding=int(problem["L"] == 31))

    with pytest.raises(Red) as caught:
        verdict(program, seed=seed)
    assert "L=31 " in caught.value.where


@pytest.mark.parametrize("name", CAUSAL_NUMBERS)
def test_wrong_masks_are_red(name: str) -> None:
    with pytest.raises(Red):
        verdict(
            lambda m, p, _n: flash(m, p, tile=32, **CAUSAL_NUMBERS[name]),
            TASK.problem("1,2,96,64", causal=True),
        )


def test_half_precision_sums_are_red_at_the_length_of_a_study() -> None:
    with pytest.raises(Red):
        verdict(lambda m, p, _n: flash(m, p, tile=16, half_sums=True), TASK.problem("1,2,512,64"))


def fixed(value: Callable[[Memory, Problem], torch.Tensor | float]) -> Program:
    def program(memory: Memory, problem: Problem, _before: int) -> None:
        inside(memory["o"], problem).copy_(torch.as_tensor(value(memory, problem)))

    return program


GUESSES: dict[str, Program] = {
    "zeros": fixed(lambda _m, _p: 0.0),
    "ones": fixed(lambda _m, _p: 1.0),
    "mean of V": fixed(lambda m, p: inside(m["v"], p).float().mean(2, keepdim=True)),
    "copy of V": fixed(lambda m, p: inside(m["v"], p)),
    "NaN": fixed(lambda _m, _p: math.nan),
    "infinity": fixed(lambda _m, _p: math.inf),
    "nothing written": lambda _m, _p, _n: None,
}


@pytest.mark.parametrize("guess", GUESSES)
def test_guesses_are_red(guess: str) -> None:
    with pytest.raises(Red):
        verdict(GUESSES[guess])


@pytest.mark.parametrize("family", TASK.families)
@pytest.mark.parametrize("length", [65, 96, 259])
@pytest.mark.parametrize("guess", ["zeros", "mean of V", "copy of V", "previous output"])
def test_guesses_fail_on_every_case(guess: str, length: int, family: str) -> None:
    """Not only somewhere: a case that a guess passes tests nothing. (Equal keys make the mean of V right.)"""
    problem = TASK.problem(f"1,2,{length},64")
    inputs = TASK.inputs(problem, family, 3, "cpu")
    reference, fair = TASK.reference(problem, inputs)["o"], TASK.honest(problem, inputs)["o"]
    before = TASK.inputs(problem, family, 4, "cpu")
    out = {
        "zeros": torch.zeros_like(fair),
        "mean of V": inputs["v"].float().mean(2, keepdim=True).expand(fair.shape).to(fair.dtype),
        "copy of V": inputs["v"],
        "previous output": TASK.honest(problem, before)["o"],
    }[guess]
    if guess == "mean of V" and family == "equal_keys":
        judge("o", out, reference, fair)
        return
    with pytest.raises(Red):
        judge("o", out, reference, fair)


# ------------------------------------------------------------------------------------------------ the judge


def judged(change: Callable[[torch.Tensor], object], problem: Problem = SMALL) -> None:
    inputs = TASK.inputs(problem, "offset_v", 5, "cpu")
    fair = TASK.honest(problem, inputs)["o"]
    out = fair.clone()
    change(out)
    judge("o", out, TASK.reference(problem, inputs)["o"], fair)


def test_the_honest_computation_is_on_its_own_line() -> None:
    judged(lambda _out: None)


def test_one_wrong_row_is_named() -> None:
    def change(out: torch.Tensor) -> None:
        out[0, 1, 77] *= 1.01

    with pytest.raises(Red, match="1 of 192 rows") as caught:
        judged(change)
    assert caught.value.where.startswith("o[0, 1, 77, ")


def test_one_wrong_element_in_a_long_row_is_named() -> None:
    def change(out: torch.Tensor) -> None:
        out[0, 1, 77, 9] += 0.016  # 3.5e-4 of the row's length: below the line of rows

    with pytest.raises(Red) as caught:
        judged(change, TASK.problem("1,2,96,128"))
    assert caught.value.reason == "element error"
    assert caught.value.where == "o[0, 1, 77, 9]"


@pytest.mark.parametrize(
    ("value", "reason"), [(math.nan, "NaN in the output"), (-math.inf, "Inf in the output")]
)
def test_nan_and_inf_are_told_apart(value: float, reason: str) -> None:
    def change(out: torch.Tensor) -> None:
        out[0, 0, 5, 6] = value

    with pytest.raises(Red) as caught:
        judged(change)
    assert caught.value.reason == reason
    assert caught.value.where == "o[0, 0, 5, 6]"


def test_a_row_of_zeros_is_held_to_the_size_of_the_others() -> None:
    reference = torch.randn(4, 8, dtype=torch.float64).half().double()
    reference[2] = 0
    fair = reference.half()
    judge("o", fair, reference, fair)
    wrong = fair.clone()
    wrong[2, 3] = 0.01
    with pytest.raises(Red):
        judge("o", wrong, reference, fair)


@pytest.mark.parametrize(("rows", "floor"), [(SMALL_ROWS, ROW_FLOOR), (SMALL_ROWS - 1, SMALL_FLOOR)])
def test_the_line_never_falls_below_rounding(rows: int, floor: float) -> None:
    exact = torch.randn(rows, 8, dtype=torch.float64).half()
    found = judge("o", exact, exact.double(), exact)
    assert found.row_error == 0
    assert found.row_limit == floor * 2**-11


@pytest.mark.parametrize("family", TASK.families)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_one_key_may_have_a_rounded_weight(dtype: str, family: str) -> None:
    """One key: the honest computation is exact; a weight below 1 is rounded before it is divided out."""
    problem = TASK.problem("1,2,1,64", dtype)
    for seed in range(20):
        inputs = TASK.inputs(problem, family, seed, "cpu")
        reference, fair = TASK.reference(problem, inputs)["o"], TASK.honest(problem, inputs)["o"]
        for weight in torch.linspace(0.5, 0.999, 30):
            stored = weight.to(fair.dtype).double()
            out = (inputs["v"].double() * stored / weight.double()).to(fair.dtype)
            judge("o", out, reference, fair)
        wrong = fair.clone()
        largest = wrong.double().abs().argmax()
        wrong.view(-1)[largest] *= 1 + 6 * torch.finfo(fair.dtype).eps
        with pytest.raises(Red):
            judge("o", wrong, reference, fair)


# -------------------------------------------------------------------------------------- memory and launches


def after(act: Callable[[Memory, Problem, int], None]) -> Program:
    """Honest, and then something that must not be."""

    def program(memory: Memory, problem: Problem, before: int) -> None:
        honest(memory, problem)
        act(memory, problem, before)

    return program


def _past_the_end(memory: Memory, _problem: Problem, _before: int) -> None:
    memory["o"][-(GUARD_BYTES // 2)] = 0.5


def _before_the_start(memory: Memory, _problem: Problem, _before: int) -> None:
    memory["k"][GUARD_BYTES // 2 - 1] = 0.5


def _input(memory: Memory, problem: Problem, _before: int) -> None:
    inside(memory["k"], problem)[0, 0, 0, 3] *= -1


def _third_launch(memory: Memory, problem: Problem, before: int) -> None:
    if before >= 2:
        inside(memory["o"], problem)[0, 1, 0, 0] += 1


def _last_row_unwritten(memory: Memory, problem: Problem, _before: int) -> None:
    out = inside(memory["o"], problem)
    if problem["L"] % 32:
        out[0, -1, -1] = 0


def _only_own_length(memory: Memory, problem: Problem, _before: int) -> None:
    if problem["L"] != SMALL["L"]:
        inside(memory["o"], problem).zero_()


def _noisy(memory: Memory, problem: Problem, before: int) -> None:
    out = inside(memory["o"], problem)
    out[0, 0, 0, 0] = torch.nextafter(out[0, 0, 0, 0], torch.tensor(99.0 * (-1) ** before, dtype=out.dtype))


DAMAGE = {
    "past the end": (_past_the_end, "write out of bounds", "0 bytes past the end of o"),
    "before the start": (_before_the_start, "write out of bounds", "2 bytes before k"),
    "input changed": (_input, "input changed", "k byte "),
    "wrong from the third launch": (_third_launch, "relation broken: ones", "o[0, 1, 0, 0]"),
    "last row": (_last_row_unwritten, "row error", "L=65"),
    "right for the tuned length only": (_only_own_length, "row error", ""),
    "not deterministic": (_noisy, "runs differ", "o[0, 0, 0, 0]"),
}


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "looked at together, as on a GPU"])
@pytest.mark.parametrize("name", DAMAGE)
def test_misbehaviour_is_red_with_its_place(name: str, batched: bool) -> None:
    act, reason, where = DAMAGE[name]
    device = HostDevice(kind="cuda", schedules=("default",)) if batched else None
    if batched and name == "wrong from the third launch":  # two of the first case come before
        reason, where = "relation broken: ones", "schedule=default"
    with pytest.raises(Red) as caught:
        verdict(after(act), device=device)
    assert caught.value.reason == reason
    assert where in caught.value.where
    assert "seed=" in caught.value.where


def test_a_template_that_promises_no_bits_may_differ_in_them() -> None:
    verdict(after(_noisy), deterministic=False)


def test_accumulating_into_the_output_is_red() -> None:
    def program(memory: Memory, problem: Problem, _before: int) -> None:
        out = inside(memory["o"], problem)
        stale = out.nan_to_num()
        honest(memory, problem)
        out += stale

    with pytest.raises(Red):
        verdict(program)


def test_a_kernel_that_recognises_nan_poison_is_red() -> None:
    """It leaves the last row alone unless it sees the NaN that a naive gate fills outputs with."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        out = inside(memory["o"], problem)
        last = out[:, :, -1].clone()
        honest(memory, problem)
        if not last.isnan().any():
            out[:, :, -1] = last

    with pytest.raises(Red):
        verdict(program)


@pytest.mark.parametrize("zeroed", [False, True])
def test_workspaces(zeroed: bool) -> None:
    """Scratch is poisoned before each launch; a zeroed one must be zero again after it."""
    work = (Workspace("tickets", 64, zeroed=zeroed),)

    def uses(memory: Memory, problem: Problem, _before: int) -> None:
        tickets = memory["tickets"][GUARD_BYTES // 4 : -(GUARD_BYTES // 4)]
        honest(memory, problem)
        if (tickets != 0).any():
            inside(memory["o"], problem).zero_()
        tickets += 1

    with pytest.raises(Red) as caught:
        verdict(uses, workspaces=work)
    assert caught.value.reason == ("workspace not left zero" if zeroed else "row error")

    def cleans(memory: Memory, problem: Problem, before: int) -> None:
        uses(memory, problem, before)
        memory["tickets"][GUARD_BYTES // 4 : -(GUARD_BYTES // 4)] = 0

    if zeroed:
        verdict(cleans, workspaces=work)


def test_relations_see_what_a_reference_case_does_not_contain() -> None:
    """A kernel that is right unless all values are equal: no input family has that."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        honest(memory, problem)
        values = inside(memory["v"], problem)
        if problem["L"] > 1 and bool((values == values[0, 0, 0, 0]).all()):
            inside(memory["o"], problem).mul_(1.01)

    with pytest.raises(Red) as caught:
        verdict(program)
    assert caught.value.reason == "relation broken: ones"


def test_heads_that_lean_on_each_other_are_red() -> None:
    def program(memory: Memory, problem: Problem, _before: int) -> None:
        honest(memory, problem)
        out = inside(memory["o"], problem)
        # the last bit of head 0 follows the sign of the last head's first query element
        towards = torch.tensor(math.copysign(9.0, float(inside(memory["q"], problem)[0, -1, 0, 0])))
        out[0, 0, 0, 0] = torch.nextafter(out[0, 0, 0, 0], towards.to(out.dtype))

    with pytest.raises(Red) as caught:
        verdict(program)
    assert caught.value.reason == "relation broken: heads apart"


@pytest.mark.parametrize("schedule", ["late", "reversed"])
def test_errors_that_only_a_hostile_schedule_shows_are_red(schedule: str) -> None:
    seen: list[str] = []

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        honest(memory, problem)
        if seen[-1] == schedule and problem["L"] > 64:
            inside(memory["o"], problem)[0, 0, 0, 0] += 0.5

    with pytest.raises(Red) as caught:
        verdict(program, seen=seen)
    assert f"schedule={schedule}" in caught.value.where


def test_module_level_state_is_red() -> None:
    used = """.visible .global .align 4 .u32 calls;
.visible .entry k(.param .u64 p) {
  ld.global.u32 %r1, [calls];
  ret;
}"""
    with pytest.raises(Red, match="calls"):
        verdict(honest, ptx=used)
    assert not module_state(used.replace("[calls]", "[%rd1]"))  # declared by a library, used by nobody
    assert not module_state(used.replace("calls", "$str"))
    assert not module_state(
        ".const .align 4 .b8 table[16] = {1, 2};\n.visible .entry k() {\n ld.const.u32 %r1, [table];\n}"
    )
    table = ".global .align 4 .b8 table[16];\n.visible .entry k() {\n mov.u64 %rd1, table;\n}"
    assert module_state(table) == ("table",)


# ---------------------------------------------------------------------------------------------- the verdict


def test_only_the_gate_makes_a_green() -> None:
    green = verdict(honest)
    fields = {name: getattr(green, name) for name in Green.__slots__}
    with pytest.raises(TypeError, match=r"only gate\.check"):
        Green(object(), **fields)
    with pytest.raises(AttributeError):
        green.kernel = None  # type: ignore[assignment]
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            duplicate(green)


def test_the_same_seed_gives_the_same_verdict_and_another_seed_other_inputs() -> None:
    one, same, other = (verdict(honest, seed=s).errors for s in (1, 1, 2))
    assert one == same
    assert {e.seed for e in one}.isdisjoint(e.seed for e in other)


def test_a_red_fails_again_at_the_same_element_and_keeps_what_was_measured() -> None:
    program: Program = after(_last_row_unwritten)
    reds = []
    for _ in range(2):
        with pytest.raises(Red) as caught:
            verdict(program, seed=9)
        reds.append(caught.value)
    assert reds[0].where == reds[1].where
    assert reds[0].errors == reds[1].errors
    failed = reds[0].errors[-1]
    assert failed.row_error > failed.limit
    case = f"{failed.problem} {failed.family} seed={failed.seed}"
    assert reds[0].where.startswith(case)
    assert pickle.loads(pickle.dumps(reds[0])).errors == reds[0].errors


def test_problems_that_the_kernel_cannot_serve_are_named() -> None:
    first = TASK.gate_problems(SMALL, TILES)[0]["L"]
    green = verdict(honest, only={SMALL["L"]})  # a length may be compiled in
    assert any("fixed length" in text for text in green.skipped)
    assert {e.problem for e in green.errors} == {SMALL.key, SMALL.replace(H=1).key}
    with pytest.raises(Infeasible):
        verdict(honest, only={first})


def test_a_dear_kernel_gets_fewer_boundary_problems_but_its_own_in_full() -> None:
    cheap = verdict(honest)
    dear_device = HostDevice()

    def dear(self: HostKernel, *args: Any) -> LaunchReport:
        report = launch(self, *args)
        return replace(report, counters={"instructions": 3e6 * self.problem["L"] / 65})

    launch = HostKernel.launch
    HostKernel.launch = dear  # type: ignore[assignment,method-assign]
    try:
        green = verdict(honest, device=dear_device)
    finally:
        HostKernel.launch = launch  # type: ignore[method-assign]
    assert green.launches < cheap.launches
    assert any("instructions" in text for text in green.skipped)
    assert green.errors[-1].problem == SMALL.key
    assert not cheap.skipped


def test_plans_cover_families_boundaries_and_schedules() -> None:
    device = HostDevice()
    for seed in range(len(TASK.families)):
        plan = plan_boundary(TASK, SMALL, TILES, seed, device)
        assert {case.family for case in plan} == set(TASK.families)
        assert plan[0].family == "normal"
        assert plan[1].family == "peaky"
        assert {case.problem["L"] for case in plan} == {p["L"] for p in TASK.gate_problems(SMALL, TILES)}
        assert any(case.schedules == device.schedules for case in plan)
    families = {
        (c.problem["L"], c.family)
        for s in range(len(TASK.families))
        for c in plan_boundary(TASK, SMALL, TILES, s, device)
    }
    assert {f for length, f in families if length == 31} == set(TASK.families)
    own = plan_own(TASK, SMALL, 0, HostDevice(kind="cuda"))
    assert sum(len(case.schedules) for case in own) >= 20
    assert [case.family for case in own] == ["spike", "normal"]


def test_seeds_of_cases_are_spread() -> None:
    seeds = {
        case_seed(s, p, f) for s in range(50) for p in TASK.gate_problems(SMALL, TILES) for f in TASK.families
    }
    assert len(seeds) == 50 * len(TASK.gate_problems(SMALL, TILES)) * len(TASK.families)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_arena_aligns_as_promised_and_no_better() -> None:
    inputs = TASK.inputs(SMALL, "normal", 0, "cpu")
    for shift, mod in ((0, 0), (16, 16)):
        arena = Arena(TASK.buffers(SMALL), (), torch_device="cpu", shift=shift)
        arena.fill(inputs, seed=1)
        assert all(torch.equal(tensor, inputs[name]) for name, tensor in arena.inputs().items())
        assert all(region.address % 256 == mod for region in arena.regions.values())
        assert [r.writable for r in arena.regions.values()] == [False, False, False, True]
        assert [r.initialised for r in arena.regions.values()] == [True, True, True, False]


def test_poison_alternates() -> None:
    arena = Arena(TASK.buffers(SMALL), (), torch_device="cpu")
    arena.fill(TASK.inputs(SMALL, "normal", 0, "cpu"), seed=1)
    outputs = []
    for turn, image in enumerate(arena.room_for_images(4)):
        arena.poison(turn)
        arena.take_image(image)
        outputs.append(arena.outputs(image)["o"])
    assert outputs[0].isnan().all()
    assert outputs[1].isfinite().all()
    assert outputs[2].isnan().all()
    assert len({o.view(torch.int16).flatten()[:64].numpy().tobytes() for o in outputs}) == 4
    assert Case(SMALL, "normal", 1, ("default",)).problem is SMALL


@pytest.mark.parametrize("length", [9, 41, 100, 333])
def test_a_single_bad_remainder_is_found_by_a_thorough_check(length: int) -> None:
    """Mutation testing found these: one padding key unmasked, at one length of the last tile only."""

    def program(memory: Memory, problem: Problem, _before: int) -> None:
        flash(memory, problem, tile=32, padding=int(problem["L"] == length))

    with pytest.raises(Red) as caught:
        verdict(program, thorough=True)
    assert f"L={length} " in caught.value.where


def test_ragged_problems_change_with_the_seed_and_are_all_there_for_finalists() -> None:
    device = HostDevice()
    every = {p["L"] for p in TASK.ragged_problems(SMALL, TILES)}
    assert every == set(range(1, 129))
    boundary = {p["L"] for p in TASK.gate_problems(SMALL, TILES)}
    for on, count, more in ((device, 32, boundary), (HostDevice(kind="cuda"), 12, set())):
        few = [plan_ragged(TASK, SMALL, TILES, s, on, False) for s in range(30)]
        assert all({c.problem["L"] for c in cases[:-count]} == more for cases in few)
        ragged = [{c.problem["L"] for c in cases[-count:]} for cases in few]
        assert all(len(lengths) == count for lengths in ragged)
        assert len(set().union(*ragged)) > 100
        if on.kind == "emulator":  # an even and an odd one of each eight, with and without a tile before
            for lengths in ragged:
                last = {(length % 64 // 8, length % 2, length > 64) for length in lengths}
                assert last == {(e, odd, deep) for e in range(8) for odd in (0, 1) for deep in (False, True)}
    thorough = plan_ragged(TASK, SMALL, TILES, 0, device, True)
    far = set(range(129, 513))
    assert {c.problem["L"] for c in thorough} == every | boundary | far
    assert {c.family for c in thorough} == set(TASK.families)
    assert {c.problem["L"] for c in thorough if c.family == TASK.mask_family} == every | far
    assert {c.schedules for c in thorough if c.problem["L"] in far} >= {(s,) for s in device.schedules}
    assert boundary <= {c.problem["L"] for c in thorough if c.family == TASK.families[-1]}
