"""The confirm worker: what the emulator says of a finalist, and a process that hangs or dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from finals import WildSpec
from landscape import new_study

from evo.cache import default_folder
from evo.confirm.on_emulator import EmulatorAhead, Emulators, emulate
from evo.confirm.rounds import Fallen
from evo.confirm.worker import GpuWorker, WorkerProcess, WorkerSpec
from evo.device.synchronous import SynchronousDevice
from evo.errors import Crashed, Hung, MachineError, Red
from evo.evaluate import Evaluator, EvaluatorSpec
from evo.gpu import Limits, target
from evo.study import Setup
from evo.task import Task, load_task
from evo.template import load_template
from evo.trial import Candidate, Round

TASK = load_task("attention")
GPU = target("sm_89")


@pytest.fixture(scope="module")
def emulator() -> Iterator[Evaluator]:
    spec = EvaluatorSpec("attention", "emulator", GPU, Limits.of(GPU), default_folder())
    try:
        made = spec.build()
    except MachineError as none:
        pytest.skip(f"{none.message}")
    yield made
    made.close()


def finalist(shape: str = "1,2,96,64") -> Candidate:
    template = load_template(TASK, "flash_mma")
    return template.candidate(template.space.default, TASK.problem(shape))


def racy(shape: str = "1,2,96,64") -> Candidate:
    """A stage of K is read before the copy into it has been waited for."""
    honest = finalist(shape)
    broken = honest.source.replace("cp.async.wait_group %0", "// cp.async.wait_group %0")
    assert broken != honest.source
    return replace(honest, source=broken)


@pytest.mark.nvcc
def test_an_honest_finalist_is_clean_under_every_schedule(emulator: Evaluator) -> None:
    said = emulate(emulator, finalist(), seed=3)
    assert said.startswith("clean on the emulator: ")
    assert said.endswith(f" launches, {len(emulator.device.schedules)} schedules")


@pytest.mark.nvcc
def test_a_race_that_a_gpu_need_not_show_is_red(emulator: Evaluator) -> None:
    with pytest.raises(Red, match="emulator: race") as caught:
        emulate(emulator, racy(), seed=3)
    assert "schedule=" in caught.value.where


def test_a_problem_too_large_for_it_is_left_out(emulator: Evaluator) -> None:
    assert "too large" in emulate(emulator, finalist("1,8,65536,64"), seed=3)


# --------------------------------------------------------------------------------- a worker without its GPU


@dataclass
class LuckyEvaluator:
    """An evaluator whose GPU shows no race: every candidate is GREEN there."""

    spec: EvaluatorSpec
    device: SynchronousDevice
    task: Task = TASK
    usable: bool = True
    gated: list[tuple[int, bool]] = field(default_factory=list)
    """Seed, and whether thoroughly."""
    wrong: tuple[int, ...] = ()
    """Seeds with which a candidate is not GREEN."""

    def gate(self, candidate: Candidate, seed: int, thorough: bool) -> Any:  # noqa: ARG002
        self.gated.append((seed, thorough))
        if seed in self.wrong:
            raise Red("row error")
        return SimpleNamespace(errors=())

    def close(self) -> None: ...


@pytest.fixture
def worker(emulator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuWorker]:
    monkeypatch.setattr("evo.confirm.worker.Rounds", lambda *_: SimpleNamespace(round=lambda *_: None))
    monkeypatch.setattr("evo.confirm.worker.sanitized", lambda *_: "not asked: no compute-sanitizer")
    device = SynchronousDevice()
    evaluator = LuckyEvaluator(replace(emulator.spec, device="cuda:0"), device)
    made = GpuWorker(evaluator, TASK.example, patient=False)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.mark.nvcc
def test_a_race_that_the_gpu_did_not_show_is_not_loaded(worker: GpuWorker) -> None:
    """Not loaded: no rounds, no CONFIRMED row. The next finalist takes its place."""
    with pytest.raises(Red, match="emulator: race"):
        worker.gate("study/1", racy(), 3, True)
    worker.gate("study/2", finalist(), 3, True)
    assert list(worker.loaded) == ["study/2"]
    said = worker.sanitize("study/2")
    assert said.startswith("not asked: ")
    assert "; clean on the emulator: " in said


@pytest.mark.nvcc
def test_the_emulator_begins_with_all_that_is_coming(worker: GpuWorker) -> None:
    """What it says of one does not wait for the GPU's verdict on another, and is not asked for twice."""
    coming = [("study/1", racy(), 3), ("study/2", finalist(), 3), ("study/3", finalist(), 4)]
    worker.expect(coming, time.time() + 60)
    for name, candidate, seed in coming[1:]:
        worker.gate(name, candidate, seed, True)
    with pytest.raises(Red, match="emulator: race"):
        worker.gate(*coming[0], True)
    assert list(worker.loaded) == ["study/2", "study/3"]


@pytest.mark.nvcc
def test_the_emulator_is_not_asked_about_what_is_expected_no_longer(
    emulator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread has begun with the first of three; the second is given up, until it is due."""
    monkeypatch.setattr("evo.confirm.on_emulator.usable_cores", lambda: 2)
    coming = [("study/1", finalist(), 3), ("study/2", finalist(), 4), ("study/3", finalist(), 5)]
    with closing(Emulators(replace(emulator.spec, device="cuda:0"), emulator.task)) as emulators:
        first, second, third = (emulators.ask(*asked) for asked in coming)
        while not first.running():
            time.sleep(0.01)
        emulators.forget_all_but(coming[2:])
        assert (first.cancelled(), second.cancelled(), third.cancelled()) == (False, True, False)
        for name, candidate, seed in coming:
            assert emulators.ask(name, candidate, seed).result().startswith("clean on the emulator: ")
        assert emulators.ask(*coming[0]) is first


def test_those_that_are_expected_are_gated_while_nothing_is_asked(worker: GpuWorker) -> None:
    """Those that are expected no longer are not; each is gated once; between rounds nothing runs."""
    evaluator: Any = worker._evaluator
    evaluator.wrong = (5,)
    large = finalist("1,8,65536,64")  # the emulator is not asked
    worker.expect([("study/1", large, 3), ("study/2", large, 4)], time.time() + 60)
    assert worker.meanwhile()
    worker.expect([("study/3", large, 5), ("study/1", large, 3)], time.time() + 60)
    assert worker.meanwhile()
    # the confirmation says once more what it will ask for
    worker.expect([("study/1", large, 3)], time.time() + 60)
    assert not worker.meanwhile()
    assert evaluator.gated == [(3, True), (5, True)]
    worker.gate("study/1", large, 3, True)
    with pytest.raises(Red, match="row error"):
        worker.gate("study/3", large, 5, True)
    assert evaluator.gated == [(3, True), (5, True)]
    worker.gate("study/1", large, 3, False)
    assert evaluator.gated[-1] == (3, False), "loaded anew: what was said of it before is no answer"
    worker.round("warm", 1, ["study/1"])
    assert not worker.meanwhile()
    assert len(evaluator.gated) == 3


def test_the_first_question_does_not_wait_for_the_gate_of_a_later_one(worker: GpuWorker) -> None:
    """What will be asked for first is gated at any time, another only where it ends before the question."""
    evaluator: Any = worker._evaluator
    large = finalist("1,8,65536,64")  # the emulator is not asked
    assert worker.gate_s("study/1", 3) == 0.0, "nothing is known of a gate yet"
    worker.expect([("study/1", large, 3), ("study/2", large, 4)], time.time())
    assert worker.meanwhile()
    assert not worker.meanwhile()
    assert evaluator.gated == [(3, True)], "the second one would be late"
    worker._longest_s = 30.0
    worker.expect([("study/1", large, 3), ("study/2", large, 4)], time.time() + 29)
    assert worker.meanwhile()
    assert not worker.meanwhile()
    assert evaluator.gated == [(3, True)]
    worker.expect([("study/1", large, 3), ("study/2", large, 4)], time.time() + 600)
    assert worker.meanwhile()
    assert not worker.meanwhile()
    assert evaluator.gated == [(3, True), (4, True)]


def test_what_a_gate_will_take_counts_the_emulator(worker: GpuWorker) -> None:
    """What it has not said yet, what was waited for, and not what is refused anyway."""
    said: Future[str] = Future()
    worker._emulators = cast(
        Emulators, SimpleNamespace(ask=lambda *_: said, has_said=lambda *_: said.done(), close=lambda: None)
    )
    green, red = worker._said_of(finalist(), 1), Red("row error", "wrong")
    worker._ahead = {("study/1", 1): green, ("study/2", 1): red}
    worker._longest_s = 0.01
    assert [worker.gate_s(f"study/{n}", 1) for n in (1, 2, 3)] == [0.01, 0.0, 0.01]
    threading.Timer(0.3, said.set_result, ["clean"]).start()
    worker.gate("study/1", finalist(), 1, True)
    assert [worker.gate_s(f"study/{n}", 1) for n in (1, 2)] == [0.0, 0.0]
    assert worker.gate_s("study/3", 1) > 0.25, "it was waited for"
    said, worker._longest_s = Future(), 0.01
    threading.Timer(0.3, said.set_exception, [Red("race", "two threads")]).start()
    with pytest.raises(Red, match="race"):
        worker.gate("study/4", finalist(), 1, True)
    assert worker.gate_s("study/5", 1) > 0.25


def test_only_the_end_of_a_short_search_leaves_slow_baselines_out(emulator: Evaluator) -> None:
    """`evo bench --quick` leaves out those that are compiled alone."""
    spec, problem = emulator.spec, TASK.problem("1,2,64,64")
    setup = Setup(new_study(), spec.gpu, spec.limits, TASK, spec.cache)
    assert [WorkerSpec.of(setup, patient).hurried for patient in (False, True)] == [True, False]
    assert not WorkerSpec.of_problem(problem, "cuda:0", spec.gpu, spec.cache, None, False).hurried


@pytest.mark.nvcc
def test_what_is_loaded_anew_after_a_resume_is_asked_before_its_sanitizing_ends(worker: GpuWorker) -> None:
    worker.gate("study/1", racy(), 3, False)
    with pytest.raises(Red, match="emulator: race"):
        worker.sanitize("study/1")


def test_a_problem_too_large_for_the_emulator_is_loaded_with_a_word_about_it(worker: GpuWorker) -> None:
    worker.gate("study/1", finalist("1,8,65536,64"), 3, True)
    assert "too large for it" in worker.sanitize("study/1")


def test_an_emulator_ahead_is_one_process_that_ends_with_it() -> None:
    before = set(psutil.Process().children())
    ahead = EmulatorAhead(default_folder())
    assert set(psutil.Process().children()) <= before
    ahead.build()
    ahead.build()
    (child,) = set(psutil.Process().children()) - before
    ahead.close()
    assert not child.is_running()


# ---- the process


def ask(worker: WorkerProcess, protocol: str, name: str = "s/1") -> Round:
    return worker.round(protocol, 1, [name])


@pytest.fixture
def wild() -> tuple[WorkerProcess, Candidate]:
    candidate = replace(finalist(), point={"rows": 64, "columns": 64, "stages": 2, "wide": True})
    return WorkerProcess(WildSpec(), answer_s=120), candidate


def test_a_worker_hangs_dies_and_is_replaced(wild: tuple[WorkerProcess, Candidate]) -> None:
    worker, candidate = wild
    with closing(worker):
        worker.gate("s/1", candidate, 1, True)
        assert worker.loaded == ("s/1",)
        assert ask(worker, "warm").samples_us["s/1"]
        with pytest.raises(Fallen) as fallen:
            ask(worker, "fall")
        assert fallen.value.name == "s/1"
        assert isinstance(fallen.value.error, Red)
        assert worker.loaded == ("s/1",), "the process lives"
        with pytest.raises(Crashed, match="SIGKILL") as crashed:
            ask(worker, "die")
        assert "last words" in crashed.value.detail
        assert not worker.loaded
        worker.gate("s/1", candidate, 1, False)
        worker._answer_s = 2.0
        with pytest.raises(Hung):
            ask(worker, "hang")
        assert not worker.loaded


def test_what_a_dead_worker_would_take_is_no_question(wild: tuple[WorkerProcess, Candidate]) -> None:
    """The confirmation goes on: the next question begins anew."""
    worker, candidate = wild
    with closing(worker):
        worker.gate("s/1", candidate, 1, True)
        assert worker._child is not None
        os.kill(worker._child.pid, signal.SIGKILL)
        assert worker.gate_s("s/2", 1) == 0.0
        assert not worker.loaded
        worker.gate("s/1", candidate, 1, True)


def test_a_worker_that_died_before_it_was_asked_is_replaced(wild: tuple[WorkerProcess, Candidate]) -> None:
    worker, candidate = wild
    with closing(worker):
        worker.expect([("s/1", candidate, 1)], time.time() + 60)
        assert worker._child is not None
        os.kill(worker._child.pid, signal.SIGKILL)
        while not worker._child.dead:
            time.sleep(0.01)
        worker.gate("s/1", candidate, 1, True)
        assert worker.loaded == ("s/1",)


def test_a_bug_of_ours_is_none_of_a_finalist(wild: tuple[WorkerProcess, Candidate]) -> None:
    worker, _ = wild
    with closing(worker), pytest.raises(Exception, match="ZeroDivisionError"):
        ask(worker, "bug")
