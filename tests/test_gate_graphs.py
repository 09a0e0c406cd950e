"""Memory that is kept from case to case, as on a GPU: what is found there, and that nothing is left of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from host_kernels import SMALL, TASK, HostDevice, Memory, after, honest, inside, verdict
from test_cuda import needs_gpu

from evo.errors import Red
from evo.gate import graphs
from evo.gate import run as gate_run
from evo.gate.graphs import CaseMemories, CaseMemory
from evo.gate.judge import Judge
from evo.gate.tolerance import Errors
from evo.task import load_task
from evo.trial import Problem


class Again:
    """Stands for a graph where there is no GPU: the same operations over the same memory."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.replay = work


class HostRecorder:
    memory_bytes = 1 << 34

    def __init__(self) -> None:
        self.asked = 0

    def record(self, work: Callable[[], object], counts: bool) -> Again | None:
        """What comes first is refused now and then, as what draws numbers is on a GPU."""
        self.asked += 1
        return Again(work) if counts or self.asked % 3 else None


DEVICE = HostDevice(launches_are_cheap=True, schedules=("default",))


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> CaseMemories:
    """What `verdict` takes, too."""
    monkeypatch.setattr(graphs, "pinned", lambda count: torch.empty(count, dtype=torch.float64))
    found = CaseMemories(TASK, DEVICE)
    found._recorder = HostRecorder()  # type: ignore[assignment]
    found._most_bytes = 1 << 30
    monkeypatch.setattr(gate_run, "memories_of", lambda *_: found)
    return found


def launched(memory: CaseMemory, shifted: bool, seed: int, wrong: bool = False) -> Errors:
    """What is found on two launches, which leave the honest output but where one is `wrong`."""
    guarded = memory.guarded
    guarded.fill(TASK.inputs(SMALL, "normal", seed, "cpu"), seed)
    assert all(region.address % 256 == 16 * shifted for region in guarded.regions.values())
    for turn, image in enumerate(memory.images):
        guarded.poison(turn)
        out = guarded.outputs(guarded.content)["o"]
        assert bool(out.isnan().all()) == (turn == 0), "poison, whatever was left there before"
        out.copy_(TASK.honest(SMALL, guarded.inputs())["o"])
        if wrong:
            out[0, 1, 2] *= 1.1
        guarded.take_image(image)
    suspect, *numbers = memory.look(2).tolist()
    assert not suspect
    return Errors(*numbers)


def test_a_kept_memory_finds_the_same_at_either_place_and_each_time(memories: CaseMemories) -> None:
    met: set[int] = set()
    for turn in range(6):
        shifted = bool(turn % 2)
        memory = memories.of(SMALL, (), shifted, 2, True, Judge(TASK, SMALL))
        met.add(id(memory))
        assert launched(memory, shifted, seed=turn).within
        assert not launched(memory, shifted, seed=turn, wrong=True).within
        fresh = Judge(TASK, SMALL).errors(
            TASK.inputs(SMALL, "normal", turn, "cpu"), [memory.guarded.outputs(memory.images[0])]
        )
        memory.guarded.fill(TASK.inputs(SMALL, "normal", turn, "cpu"), turn)
        assert torch.equal(memory.look(2)[1:], fresh[0]), "the same numbers as of a memory that is not kept"
    assert len(met) == 1


def test_a_task_that_may_keep_tensors_makes_them_before_its_look_is_captured(
    memories: CaseMemories, monkeypatch: pytest.MonkeyPatch
) -> None:
    for keeps, met in ((True, [0, 1, 1]), (False, [1, 1, 1])):
        monkeypatch.setattr(TASK, "keeps_tensors", keeps)
        memories._kept.clear()
        memory = memories.of(SMALL, (), False, 2, True, Judge(TASK, SMALL))
        recorder: Any = memories._recorder
        recorder.asked = 0
        found = []
        for seed in range(3):
            launched(memory, False, seed)
            found.append(recorder.asked)
        assert found == met


@needs_gpu
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("attention", [f"1,2,{length},64" for length in (33, 34, 35, 90, 33)]),
        ("rmsnorm", [f"3,{columns}" for columns in (33, 34, 35, 90, 33)]),
        ("cross_entropy", [f"3,{columns}" for columns in (33, 34, 35, 90, 33)]),
    ],
)
def test_on_a_gpu_each_look_finds_what_a_fresh_one_does(name: str, shapes: list[str]) -> None:
    task = load_task(name)
    device: Any = SimpleNamespace(torch_device="cuda:0", measures=True, launches_are_cheap=True)
    memories = CaseMemories(task, device)
    for seed in range(4):  # looked at, captured, replayed
        for shape in shapes:
            problem = task.problem(shape)
            memory = memories.of(problem, (), bool(seed % 2), 2, True, Judge(task, problem))
            inputs = task.inputs(problem, "normal", seed, "cuda:0")
            memory.guarded.fill(inputs, seed)
            for image in memory.images:
                for output, right in task.honest(problem, inputs).items():
                    memory.guarded.outputs(memory.guarded.content)[output].copy_(right)
                memory.guarded.take_image(image)
            outputs = {output: x.clone() for output, x in memory.guarded.outputs(memory.images[0]).items()}
            suspect, *found = _now(memory.look(2))
            assert not suspect
            fresh = torch.cat(Judge(task, problem).errors(inputs, [outputs])).tolist()
            assert found == pytest.approx(fresh, rel=1e-6)
            assert Errors(*found[:4]).within


def _now(found: torch.Tensor) -> list[float]:
    """What was found, when the GPU is there."""
    torch.cuda.synchronize()
    return [float(number) for number in found.tolist()]


def test_of_what_was_expected_nothing_is_left(memories: CaseMemories) -> None:
    memory = memories.of(SMALL, (), False, 2, True, Judge(TASK, SMALL))
    for seed in range(3):
        launched(memory, False, seed)
        assert memory.guarded.expected_outputs()["o"].isnan().all()
    memory.guarded.expect_outputs(memory.images[0])  # a look that did not end
    launched(memory, False, 4)


def test_launches_that_differ_are_seen_in_a_kept_memory(memories: CaseMemories) -> None:
    memory = memories.of(SMALL, (), False, 2, True, Judge(TASK, SMALL))
    for seed in range(4):
        launched(memory, False, seed)
        memory.guarded.outputs(memory.images[1])["o"][0, 0, 5, 5] += 1
        memory.guarded.fill(TASK.inputs(SMALL, "normal", seed, "cpu"), seed)
        assert memory.look(2)[0] == 1
        assert not torch.equal(memory.first_outputs()["o"], memory.guarded.outputs(memory.images[1])["o"])


def _ones_forgotten(memory: Memory, problem: Problem, _before: int) -> None:
    values = inside(memory["v"], problem)
    if problem["L"] > 1 and bool((values == values[0, 0, 0, 0]).all()):
        inside(memory["o"], problem).mul_(1.01)


def _input_changed(memory: Memory, problem: Problem, before: int) -> None:
    if before == 5:  # the fourth launch of the relations
        inside(memory["k"], problem)[0, 0, 0, 0] += 1


def _last_bit(memory: Memory, problem: Problem, before: int) -> None:
    if before == 3:  # the same launch again
        inside(memory["o"], problem)[0, 0, 0, 0] += 0.01


def _own_head(memory: Memory, problem: Problem, _before: int) -> None:
    if problem["H"] == 8:
        inside(memory["o"], problem)[0, 3, 5] *= 1.1


WRONG = {
    "relation broken: ones": _ones_forgotten,
    "input changed": _input_changed,
    "runs differ": _last_bit,
    "row error": _own_head,
}


def test_verdicts_are_the_same_whether_memory_was_met_before(memories: CaseMemories) -> None:
    problem = TASK.problem("1,8,96,64")
    first = verdict(honest, problem, seed=4, device=DEVICE)
    count = len(memories._kept)
    for seed in (4, 5, 4):
        green = verdict(honest, problem, seed=seed, device=DEVICE)
        if seed == 4:
            assert (green.errors, green.launches) == (first.errors, first.launches)
        for reason, act in WRONG.items():
            with pytest.raises(Red) as caught:
                verdict(after(act), problem, seed=4, device=DEVICE)
            assert caught.value.reason == reason
    assert len(memories._kept) >= count > 20


def _another_bit(memory: Memory, problem: Problem, before: int) -> None:
    if before == 3:  # the same launch again
        inside(memory["o"], problem).view(torch.int16)[0, 0, 0, 0] ^= 1


@pytest.mark.usefixtures("memories")
def test_whether_bits_may_differ_is_asked_of_each_candidate() -> None:
    for _ in range(3):
        assert verdict(after(_another_bit), seed=4, deterministic=False, device=DEVICE)
    with pytest.raises(Red) as caught:
        verdict(after(_another_bit), seed=4, device=DEVICE)
    assert caught.value.reason == "runs differ"


@needs_gpu
def test_work_is_captured_after_all_graphs_before_it_were_dropped() -> None:
    recorder = graphs.Recorder("cuda:0")
    ones = torch.ones(1 << 20, device="cuda:0")
    left: list[torch.Tensor] = []
    graph = recorder.record(lambda: left.append(ones + 1))
    assert graph is not None
    del graph
    again = recorder.record(lambda: left.append(ones + 2))
    assert again is not None
    again.replay()
    assert bool((left[-1] == 3).all())
