"""Memory of large problems: it is planned beforehand, and drawn, filled and judged in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_cuda import needs_gpu
from test_large_problems import LARGE, SOFTMAX, Damage, spoil

from evo.api.shapes import _stand_in
from evo.cache import default_folder
from evo.device import LaunchReport, copier
from evo.device.open import real_gpu
from evo.errors import MachineError, Red
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gate import memory
from evo.gate.budget import Budget
from evo.gate.cases import Case
from evo.gate.graphs import memories_of
from evo.gate.judge import COMPARED_ELEMENTS, drawn_parts
from evo.gate.room import gate_bytes, least_bytes, set_bytes
from evo.gpu import KNOWN_GPUS, Limits
from evo.study import Study
from evo.task import load_task
from evo.template import load_template
from evo.timing.inputs import InputSets, count_of_sets, sets_that_fit
from evo.timing.stopwatch import TimingSettings
from evo.trial import Candidate, Outcome


def test_sets_of_what_does_not_fit_the_cache_are_two() -> None:
    gpu = KNOWN_GPUS["H200"]
    small, large = gpu.l2_bytes // 8, 3 * gpu.l2_bytes
    warm, cold = TimingSettings(), TimingSettings("cold")
    assert count_of_sets(gpu, small, warm) == 4
    assert count_of_sets(gpu, large, warm) == 2, "nothing of it is left after another one"
    assert count_of_sets(gpu, large, cold) == 2
    assert count_of_sets(gpu, small, cold) == 17
    assert count_of_sets(gpu, 100, cold) == cold.most_launches, "each launch has a set of its own"
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


def test_what_belongs_to_all_pieces_counts_whole() -> None:
    """Keys and values of attention are there in fp64, however few queries are compared."""
    attention = load_task("attention")
    problem = attention.problem("1,16,262144,128")
    held = least_bytes(attention, problem) - set_bytes(attention, problem)
    elements = 16 * 262144 * 128
    assert gate_bytes(attention, problem) - held > 3 * 2 * elements + 2 * 8 * elements


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
    memory._fill(copier("cpu"), target.data_ptr(), count, field, shift)
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


@pytest.mark.parametrize(
    ("largest", "memory_gb", "evaluators"),
    [("4096,4096", 141, 4), ("16384,131072", 141, 1), ("8192,32768", 141, 4), ("8192,32768", 24, 1)],
)
def test_of_many_problems_the_largest_says_how_many_evaluate(
    tmp_path: Path, largest: str, memory_gb: int, evaluators: int
) -> None:
    problems = [SOFTMAX.problem(shape) for shape in ("64,1024", "512,1024", "32,512", largest)]
    studies = [
        Study(f"s-{n}", problem, "cuda:0", "H200", ("row_twice",), 60.0) for n, problem in enumerate(problems)
    ]
    stands_for_all = _stand_in(SOFTMAX, studies, memory_gb << 30)
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
    captured = [look for memory in memories._kept.values() for look in memory._captured.values()]
    assert sum(look._graph is not None for look in captured) > 10
    assert errors[0] == errors[1] == errors[2] == errors[3]
