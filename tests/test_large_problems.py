"""Problems too large to be judged whole: pieces of them, in memory that is planned beforehand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from host_kernels import HostDevice
from test_cuda import needs_gpu

from evo.api.shapes import _middle
from evo.cache import default_folder
from evo.compile import module_state
from evo.device import LaunchReport, Region
from evo.device.open import real_gpu
from evo.device.synchronous import SynchronousKernel
from evo.dtype import dtype_named
from evo.errors import MachineError, Red
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gate import Green, check, memory
from evo.gate.budget import Budget
from evo.gate.cases import Case
from evo.gate.graphs import CaseMemory, memories_of
from evo.gate.judge import COMPARED_ELEMENTS, FEWEST_PIECES, PART_ELEMENTS, Judge, drawn_parts
from evo.gate.memory import GuardedMemory
from evo.gate.room import gate_bytes, least_bytes, set_bytes
from evo.gate.tolerance import Errors
from evo.gpu import KNOWN_GPUS, Limits
from evo.study import Study
from evo.task import Pieces, Task, load_task, tensors
from evo.template import load_template
from evo.timing.inputs import InputSets, count_of_sets, sets_that_fit
from evo.timing.stopwatch import TimingSettings
from evo.trial import Binary, BufferArg, Candidate, LaunchConfig, Outcome, Problem, Resources

SOFTMAX = load_task("softmax")
LARGE = SOFTMAX.problem("16384,256")
"""Twice COMPARED_ELEMENTS: half of its rows are compared."""
Damage = Callable[[torch.Tensor], None]


# ---- pieces


FLAGS: dict[str, list[tuple[str, dict[str, object]]]] = {
    "rmsnorm": [("9,40", {}), ("9,40", {"residual": True, "gap": 8})],
    "layernorm": [("9,40", {})],
    "softmax": [("9,40", {}), ("9,40", {"log": True})],
    "cross_entropy": [("9,40", {"lse": True})],
    "gemm": [
        (shape, {"layout": layout, "epilogue": epilogue, "gap": gap})
        for shape in ("9,7,40,2", "7,9,40,2")
        for layout, epilogue, gap in (("NT", "bias", 8), ("NN", "residual", 0), ("TN", "bias_gelu", 1))
    ],
    "gemm_w4a16": [("3,24,256", {"zeros": True})],
}


@pytest.mark.parametrize(
    ("task", "shape", "flags"), [(task, *one) for task, several in FLAGS.items() for one in several]
)
def test_pieces_alone_have_the_outputs_that_they_have_among_others(
    task: str, shape: str, flags: dict[str, object]
) -> None:
    loaded = load_task(task)
    problem = loaded.problem(shape, None, **flags)
    pieces = loaded.pieces(problem)
    assert pieces is not None
    inputs = loaded.inputs(problem, loaded.families.plain, 3, "cpu")
    which = torch.tensor([0, 2, 5, problem.sizes[pieces.size] - 1])
    at = pieces.only(problem, which)
    own = {name: x for name, x in inputs.items() if name not in loaded.packings}
    alone = loaded.reference(at, pieces.parts(own, which))
    for name, among in pieces.parts(loaded.reference(problem, inputs), which).items():
        torch.testing.assert_close(alone[name], among, rtol=1e-12, atol=1e-12)


def test_a_task_says_its_pieces_or_is_judged_whole() -> None:
    attention = load_task("attention")
    assert attention.pieces(attention.problem("8,16,1024,128")) is None
    assert drawn_parts(attention, attention.problem("8,16,1024,128"), 1, COMPARED_ELEMENTS) == []
    assert SOFTMAX.pieces(LARGE) == Pieces("rows", {"x": 0, "y": 0})


# ---- which are compared


def test_the_seed_draws_pieces_and_the_ends_are_among_them() -> None:
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 1, COMPARED_ELEMENTS)
    assert len(drawn) == len(set(drawn)) == COMPARED_ELEMENTS // 512
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (0, 16383)
    assert drawn_parts(SOFTMAX, LARGE, 1, COMPARED_ELEMENTS) == [drawn]
    assert drawn_parts(SOFTMAX, LARGE, 2, COMPARED_ELEMENTS) != [drawn]
    assert drawn_parts(SOFTMAX, SOFTMAX.problem("2048,1024"), 1, COMPARED_ELEMENTS) == [], "small enough"
    (few,) = drawn_parts(SOFTMAX, SOFTMAX.problem("131072,262144"), 1, COMPARED_ELEMENTS)
    assert len(few) == FEWEST_PIECES


def test_all_pieces_come_in_parts() -> None:
    problem = SOFTMAX.problem("32768,16384")
    parts = drawn_parts(SOFTMAX, problem, 1, None)
    assert [row for part in parts for row in part] == list(range(32768))
    assert all(len(part) * 2 * 16384 <= PART_ELEMENTS for part in parts)


def judged(damage: Damage, most: int | None, problem: Problem = LARGE) -> Errors:
    """What a judge of half of the rows, or of all, measures on honest outputs that were damaged."""
    inputs = SOFTMAX.inputs(problem, "normal", 5, "cpu")
    y = SOFTMAX.compute(problem, {"x": inputs["x"].float()}).to(torch.bfloat16)
    damage(y)
    judge = Judge.of(SOFTMAX, problem, 7, "cpu", most)
    (errors,) = judge.errors(inputs, [{"y": y}])
    found = Errors(*errors.tolist())
    if not found.within:
        judge.refuse(inputs, {"y": y}, "y", found)
    return found


def spoil(row: int) -> Damage:
    def damage(y: torch.Tensor) -> None:
        y[row] *= 0.9

    return damage


def test_a_wrong_row_that_is_compared_is_named() -> None:
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 7, COMPARED_ELEMENTS)
    assert judged(lambda _: None, COMPARED_ELEMENTS).within
    with pytest.raises(Red) as caught:
        judged(spoil(drawn[1000]), COMPARED_ELEMENTS)
    assert caught.value.where.startswith(f"y[{drawn[1000]}, ")


def test_of_other_rows_a_number_passes_and_nothing_else() -> None:
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 7, COMPARED_ELEMENTS)
    other = next(row for row in range(16384) if row not in drawn)
    assert judged(spoil(other), COMPARED_ELEMENTS).within
    for value, reason in ((torch.nan, "NaN in the output"), (-torch.inf, "Inf in the output")):
        with pytest.raises(Red) as caught:
            judged(lambda y, value=value: y[other, 3].fill_(value), COMPARED_ELEMENTS)  # type: ignore[misc]
        assert caught.value.reason == reason
        assert caught.value.where == f"y[{other}, 3]"


def test_the_worst_part_counts_wherever_it_is() -> None:
    problem = SOFTMAX.problem("40000,256")
    parts = drawn_parts(SOFTMAX, problem, 7, None)
    assert len(parts) == 2
    for part in parts:
        with pytest.raises(Red) as caught:
            judged(spoil(part[17]), None, problem)
        assert caught.value.where.startswith(f"y[{part[17]}, ")


# ---- the gate on such a problem


@dataclass
class OnHost(SynchronousKernel):
    """Softmax of this process, and `damage` to what it wrote of LARGE."""

    task: Task
    problem: Problem
    damage: Damage

    @property
    def binary(self) -> Binary:
        return Binary(b"", "", "k", "sm_80", "none", Resources(32, 0, 0, 0), "", 0.0, module_state(""))

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        del launch
        found = {}
        for buffer in self.task.buffers(self.problem):
            at = regions[buffer.name]
            raw = torch.frombuffer((ctypes.c_char * at.nbytes).from_address(at.address), dtype=torch.uint8)
            found[buffer.name] = raw.view(dtype_named(buffer.dtype).torch).view(buffer.shape)
        found["y"].copy_(self.task.compute(self.problem, {"x": found["x"].float()}))
        if self.problem == LARGE:
            self.damage(found["y"])
        return LaunchReport(schedule, 0.0)


def verdict(damage: Damage, thorough: bool = False) -> Green:
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, (BufferArg("x"), BufferArg("y")))
    return check(
        lambda at: (OnHost(SOFTMAX, at, damage), launch),
        HostDevice(launches_are_cheap=True, schedules=("default",)),
        SOFTMAX,
        LARGE,
        (8, 64),
        seed=4,
        thorough=thorough,
    )


def test_the_gate_says_how_much_it_compared() -> None:
    green = verdict(lambda _: None)
    assert green.extent.own_share == 1.0, "all of it ran"
    said = [text for text in green.extent.left_out if "compared" in text]
    assert said[-1] == "own problem, normal: normal 8,192 of 16,384 rows compared with the reference"
    assert len(said) == 3


def test_the_gate_refuses_what_is_wrong_in_part_of_such_a_problem() -> None:
    """A row in eight, whichever is drawn; one element that changes from launch to launch; one left out."""

    def some(y: torch.Tensor) -> None:
        y[3::8] *= 1.1

    with pytest.raises(Red, match="row error"):
        verdict(some)
    turns = iter(range(1000))

    def unlike(y: torch.Tensor) -> None:
        y[777, 5] = next(turns)

    with pytest.raises(Red, match="runs differ"):
        verdict(unlike)


def test_memory_of_one_launch_holds_no_image_besides() -> None:
    guarded = GuardedMemory(SOFTMAX.buffers(LARGE), (), torch_device="cpu")
    of_case = CaseMemory(Judge(SOFTMAX, LARGE), guarded, 1, True, None)
    assert of_case.images[0].data_ptr() == guarded.content.data_ptr()
    assert of_case.nbytes == 2 * guarded.nbytes
    room = of_case.room(5)
    assert len(room) == 5
    assert guarded.content.data_ptr() not in {image.data_ptr() for image in room}


# ---- inputs


def test_large_tensors_are_drawn_in_parts_with_the_same_traits(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SOFTMAX.problem("203,96")
    whole = {family: SOFTMAX.inputs(problem, family, 3, "cpu")["x"] for family in SOFTMAX.families.names}
    monkeypatch.setattr(tensors, "DRAWN_AT_ONCE", 96 * 50)
    for family, drawn in whole.items():
        x = SOFTMAX.inputs(problem, family, 3, "cpu")["x"]
        assert torch.equal(x, SOFTMAX.inputs(problem, family, 3, "cpu")["x"]), "the same for the same seed"
        assert x.shape == drawn.shape
        assert x.dtype == drawn.dtype
        assert family != "normal" or (x == 0).all(1).sum() > 20
        assert torch.equal((x == 0).all(1), (drawn == 0).all(1)), family
        assert torch.equal((x == x[:, :1]).all(1), (drawn == drawn[:, :1]).all(1)), family
        assert not torch.equal(x[:48].flatten(), x[48:96].flatten())


def test_fp16_outputs_stay_in_range_in_parts_as_they_do_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rmsnorm = load_task("rmsnorm")
    problem = rmsnorm.problem("64,96", "fp16", residual=True)
    drawn = rmsnorm.inputs(problem, "large", 1, "cpu")
    monkeypatch.setattr("evo.task.pieces.DRAWN_AT_ONCE", 96 * 20)
    again = rmsnorm.inputs(problem, "large", 1, "cpu")
    assert all(torch.equal(drawn[name], again[name]) for name in drawn)


# ---- the plan


def test_sets_of_what_does_not_fit_the_cache_are_two() -> None:
    gpu = KNOWN_GPUS["H200"]
    small, large = gpu.l2_bytes // 8, 3 * gpu.l2_bytes
    warm, cold = TimingSettings(), TimingSettings("cold")
    assert count_of_sets(gpu, small, warm) == 4
    assert count_of_sets(gpu, large, warm) == 2, "nothing of it is left after another one"
    assert count_of_sets(gpu, large, cold) == 2
    assert count_of_sets(gpu, small, cold) == 17
    assert count_of_sets(gpu, large, warm, fit=1) == 1


def test_as_many_sets_as_fit_beside_the_gate() -> None:
    problem = SOFTMAX.problem("16384,131072")
    one, gate = set_bytes(SOFTMAX, problem), gate_bytes(SOFTMAX, problem)
    assert one == 2 * 2 * 16384 * 131072
    assert gate < 4 * one
    assert sets_that_fit(SOFTMAX, problem, None) is None
    assert sets_that_fit(SOFTMAX, problem, gate + 3 * one) == 3
    assert sets_that_fit(SOFTMAX, problem, least_bytes(SOFTMAX, problem)) == 1
    with pytest.raises(MachineError, match=r"softmax rows=16384.* it takes 25.8 GB at least, and 20.0 GB"):
        sets_that_fit(SOFTMAX, problem, 20_000_000_000)


@pytest.mark.parametrize("task", ["rmsnorm", "softmax", "cross_entropy"])
def test_what_the_gpus_memory_holds_is_planned_to_fit(task: str) -> None:
    """On an H200 all shapes of the published figures fit twice over, and what is too large is told."""
    loaded, free = load_task(task), 138_000_000_000
    for shape in ("16384,131072", "32768,65536", "8192,262144", "32768,16384"):
        problem = loaded.problem(shape)
        assert sets_that_fit(loaded, problem, free // 2) >= 2  # type: ignore[operator]
    with pytest.raises(MachineError, match="not enough memory for"):
        sets_that_fit(loaded, loaded.problem("131072,262144"), free)


class Limited:
    """As much of a device as sets of inputs need, on the CPU, with so much memory."""

    torch_device, gpu = "cpu", KNOWN_GPUS["H200"]

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes

    def finish(self) -> None: ...


def test_the_device_says_how_many_sets_there_are() -> None:
    problem = SOFTMAX.problem("512,1024")
    one, gate = set_bytes(SOFTMAX, problem), gate_bytes(SOFTMAX, problem)
    for free, count in ((gate + 9 * one, 4), (gate + 2 * one, 2), (gate, 1)):
        sets = InputSets(Limited(free), SOFTMAX, problem, TimingSettings(), 7)  # type: ignore[arg-type]
        assert len(sets) == count
    with pytest.raises(MachineError, match="not enough memory"):
        InputSets(Limited(one), SOFTMAX, problem, TimingSettings(), 7)  # type: ignore[arg-type]


def test_outputs_of_timed_launches_are_compared_in_part() -> None:
    sets = InputSets(Limited(1 << 40), SOFTMAX, LARGE, TimingSettings(sets=1), 7)  # type: ignore[arg-type]
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 7, COMPARED_ELEMENTS)
    other = next(row for row in range(16384) if row not in drawn)
    (made,) = sets._sets
    cases: list[tuple[Damage, str]] = [
        (spoil(drawn[5]), "row error"),
        (lambda y: y[other].fill_(torch.nan), "NaN in the output"),
        (spoil(other), ""),
    ]
    for damage, reason in cases:
        made.outputs["y"].copy_(SOFTMAX.compute(LARGE, {"x": made.inputs["x"].float()}))
        damage(made.outputs["y"])
        sets.keep([], frozenset({0}))
        if reason:
            with pytest.raises(Red, match=reason):
                sets.judge()
        else:
            sets.judge()


@pytest.mark.parametrize("shift", [0, 12, 65532])
@pytest.mark.parametrize("count", [1000, (4 << 20) - 7, 4 << 20, 30_000_001])
def test_any_amount_of_memory_is_filled_with_the_pattern(
    count: int, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LARGE_BYTES", 8 << 20)
    field = memory._nan_field("cpu")
    target = torch.zeros(count, dtype=torch.uint8)
    memory._fill(target, field, shift)
    pattern = field[: 64 << 10].roll(-shift)
    whole = count // len(pattern) * len(pattern)
    assert bool((target[:whole].view(-1, len(pattern)) == pattern).all())
    assert torch.equal(target[whole:], pattern[: count - whole])


# ---- the emulator's share


@pytest.mark.parametrize(("shape", "share"), [("2048,4096", 1.0), ("16384,131072", 2e7 / 2**32)])
def test_the_emulator_runs_a_share_of_what_has_many_elements(shape: str, share: float) -> None:
    """A launch of 16,384 x 131,072 takes few enough instructions for a finalist, and its inputs 8 GB."""
    problem = SOFTMAX.problem(shape)
    small = SOFTMAX.problem("64,128")
    own = Case(problem, "normal", 1, ("eager",), kind="own", class_name="own problem, normal")
    for thorough in (False, True):
        budget = Budget(SOFTMAX, problem, thorough)
        budget.plan([own])
        report = LaunchReport("eager", 0.0, {"instructions": SOFTMAX.flop(small) / 1e4})
        budget.pay(Case(small, "normal", 1, ("eager",)), report)
        at = budget.own_share(own)
        assert at is not None
        assert SOFTMAX.flop(at) / SOFTMAX.flop(problem) == pytest.approx(share, rel=0.02)
        budget.ran_own(replace(own, problem=at))
        said = " ".join(budget.extent().left_out)
        assert ("4.3e+09 elements" in said) == (share < 1)
    unpriced = Budget(SOFTMAX, problem, False)
    unpriced.plan([own])
    unpriced.pay(Case(small, "normal", 1, ("default",)), LaunchReport("default", 0.0))
    assert unpriced.own_share(own) == problem, "on a GPU all of it"


# ---- many problems


@pytest.mark.parametrize(("largest", "evaluators"), [("4096,4096", 4), ("16384,131072", 1)])
def test_of_many_problems_the_largest_says_how_many_evaluate(
    tmp_path: Path, largest: str, evaluators: int
) -> None:
    problems = [SOFTMAX.problem(shape) for shape in ("64,1024", "512,1024", "32,512", largest)]
    studies = [
        Study(f"s-{n}", problem, "cuda:0", "H200", ("row_twice",), 60.0) for n, problem in enumerate(problems)
    ]
    stands_for_all = _middle(SOFTMAX, studies)
    gpu = KNOWN_GPUS["H200"]
    spec = EvaluatorSpec("softmax", "cuda:0", gpu, Limits.of(gpu), tmp_path, problem=stands_for_all.problem)
    assert spec.evaluators(16) == evaluators


# ---- on a GPU


@pytest.fixture
def on_gpu() -> Iterator[Callable[[str, str], Evaluator]]:
    """Makes an evaluator of a task for a problem on the first GPU."""
    made: list[Evaluator] = []

    def make(task: str, shape: str) -> Evaluator:
        gpu = real_gpu("cuda:0")
        problem = load_task(task).problem(shape)
        made.append(
            EvaluatorSpec(task, "cuda:0", gpu, Limits.of(gpu), default_folder(), problem=problem).build()
        )
        return made[-1]

    yield make
    for evaluator in made:
        evaluator.close()
    torch.cuda.empty_cache()


def first_point(evaluator: Evaluator, name: str) -> Candidate:
    problem, limits = evaluator.spec.problem, evaluator.spec.limits
    assert problem is not None
    template = load_template(evaluator.task, name)
    return template.candidate(template.space.default_for(problem, limits), problem)


@needs_gpu
@pytest.mark.parametrize(
    ("task", "shape"),
    [("softmax", "16384,131072"), ("cross_entropy", "32768,65536"), ("rmsnorm", "32768,16384")],
)
def test_a_gpu_has_room_for_it(on_gpu: Callable[[str, str], Evaluator], task: str, shape: str) -> None:
    loaded = load_task(task)
    problem = loaded.problem(shape)
    free, _ = torch.cuda.mem_get_info()
    planned = gate_bytes(loaded, problem) + 2 * set_bytes(loaded, problem)
    if planned > free:
        pytest.skip(f"{planned / 1e9:.0f} GB are planned, {free / 1e9:.0f} are free")
    torch.cuda.reset_peak_memory_stats()
    evaluator = on_gpu(task, shape)
    trial = evaluator.evaluate(first_point(evaluator, "row_twice"))
    assert trial.outcome == Outcome.TIMED, (trial.reason, trial.where)
    assert torch.cuda.max_memory_allocated() < planned


@needs_gpu
def test_looks_at_a_row_kernel_are_captured(on_gpu: Callable[[str, str], Evaluator]) -> None:
    """The same candidate again and again: what was met twice is a graph, and says the same."""
    evaluator = on_gpu("rmsnorm", "256,2048")
    candidate = first_point(evaluator, "row_registers")
    errors = [evaluator.gate(candidate, seed, thorough=False).errors for seed in (1, 1, 1, 1)]
    memories = memories_of(evaluator.task, evaluator.device)
    assert memories._recorder is not None
    assert memories._recorder._refusals == 0
    assert sum(memory._graph is not None for memory in memories._kept.values()) > 10
    assert errors[0] == errors[1] == errors[2] == errors[3]
