"""The pool, with real processes: some of them hang, die, lie or leak, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from math import isnan
from pathlib import Path

import psutil
import pytest
from obedient import ObedientSpec, all_end, awaited, candidate, children, rest, run

from evo.child import ChildError
from evo.errors import MachineError, NotEnoughMemory
from evo.evaluate.evaluating import Builds
from evo.evaluate.pool import Pool
from evo.trial import Outcome, Trial

DEADLINE_S, STARTS_S = 4.0, 12.0
"""Long for what is done at once, and for a start, even where others have the processor; short for a hang."""
FORKS = pytest.mark.parametrize("forks", [False, True])


@FORKS
def test_every_candidate_comes_back_once(forks: bool) -> None:
    before = children()
    with Pool(ObedientSpec(forks=forks), workers=2) as pool:
        finished = run(pool, ["green"] * 40)
        assert sorted(number for number, _ in finished) == list(range(40))
        assert all(trial.outcome == Outcome.GREEN for _, trial in finished)
        assert len({trial.counters["pid"] for _, trial in finished}) == 2
        assert pool.wait(0.0) == []
    assert all_end(before)


@FORKS
def test_a_hang_is_hung_and_the_search_goes_on(forks: bool) -> None:
    before = children()
    with Pool(ObedientSpec(forks=forks), workers=2, deadline_s=DEADLINE_S) as pool:
        finished = dict(run(pool, ["green", "hang", "green", "green", "hang", "green"]))
    assert [finished[n].outcome for n in range(6)] == ["GREEN", "HUNG", "GREEN", "GREEN", "HUNG", "GREEN"]
    assert finished[1].reason == "deadline"
    assert "gate" in finished[1].detail
    assert DEADLINE_S * 0.9 < finished[1].seconds["gate"] < 100, "a hang takes eleven days"
    assert all_end(before)


def test_waiting_for_others_does_not_count() -> None:
    with Pool(ObedientSpec(), workers=2, deadline_s=DEADLINE_S) as pool:
        finished = dict(run(pool, [f"turn {1.5 * DEADLINE_S}", "green", "turn 0.7"]))
    assert [finished[n].outcome for n in range(3)] == ["GREEN"] * 3


DEATHS = [("exit 3", "exit code 3"), ("signal 11", "killed by SIGSEGV"), ("signal 9", "killed by SIGKILL")]


@pytest.mark.parametrize(("source", "reason"), DEATHS)
@FORKS
def test_a_death_is_crashed_and_the_search_goes_on(source: str, reason: str, forks: bool) -> None:
    with Pool(ObedientSpec(forks=forks), workers=1) as pool:
        finished = dict(run(pool, ["green", source, "green"]))
    assert [finished[n].outcome for n in range(3)] == ["GREEN", "CRASHED", "GREEN"]
    assert finished[1].reason == reason
    if source.startswith("exit"):
        assert finished[1].detail == "last words"
    assert finished[0].counters["pid"] != finished[2].counters["pid"]


def test_a_dead_context_gets_a_new_process() -> None:
    with Pool(ObedientSpec(), workers=1) as pool:
        finished = dict(run(pool, ["green", "crash", "green", "red"]))
    assert finished[1].outcome == Outcome.CRASHED
    assert finished[1].reason == "illegal address"
    assert finished[0].counters["pid"] != finished[2].counters["pid"]
    assert (finished[3].reason, finished[3].where) == ("race", "k.cu:3")


@pytest.mark.parametrize("compile_s", [None, 0.01])
def test_a_problem_that_does_not_fit_is_told_and_others_go_on(compile_s: float | None) -> None:
    with Pool(ObedientSpec(compile_s=compile_s), workers=1) as pool:
        for number, source in enumerate(["green", "large", "green"]):
            pool.submit(number, candidate(source))
        finished, told = list[tuple[int, Trial]](), list[NotEnoughMemory]()
        while len(finished) < 2:
            try:
                finished += pool.wait(60.0)
            except NotEnoughMemory as short:
                told.append(short)
    assert [one.number for one in told] == [1]
    assert told[0].message.startswith(f"not enough memory for {candidate('large').problem.key}: ")
    assert [number for number, _ in finished] == [0, 2]
    assert len({trial.counters["pid"] for _, trial in finished}) == 1


def test_one_worker_keeps_the_order() -> None:
    sources = [
        "sleep 0.1",
        "green",
        "exit 1",
        "green",
        "uncompilable",
        "hang",
        "sleep 0.05",
        "crash",
        "uncompilable",
    ]
    for compile_s in (None, 0.01):
        with Pool(ObedientSpec(compile_s=compile_s), workers=1, deadline_s=DEADLINE_S) as pool:
            for number, source in enumerate(sources):  # more at once than there is capacity for
                pool.submit(number, candidate(source))
            finished = rest(pool, len(sources))
        assert [number for number, _ in finished] == list(range(len(sources)))


def test_compiling_runs_ahead_of_one_evaluator() -> None:
    """Four candidates are compiled at the same time."""
    with Pool(ObedientSpec(most=1, compile_s=1.0), workers=4) as pool:
        for number in range(4):
            pool.submit(number, candidate("green"))
        at_once, finished = 0, list[tuple[int, Trial]]()
        while len(finished) < 4:
            finished += pool.wait(0.02)
            at_once = max(at_once, sum(": compile" in line for line in pool.activity()))
        assert len({trial.counters["pid"] for _, trial in finished}) == 1
    assert at_once == 4


def test_what_no_evaluator_has_can_be_given_up() -> None:
    with Pool(ObedientSpec(), workers=1) as pool:
        for number in range(4):
            pool.submit(number, candidate("green"))
        assert pool.withdraw(range(4)) == {2, 3}, "one under way, and one at hand"
        pool.submit(9, candidate("green"))
        assert [number for number, _ in rest(pool, 3)] == [0, 1, 9]
    with Pool(ObedientSpec(most=1, compile_s=2.0), workers=1) as pool:
        for number in range(3):
            pool.submit(number, candidate("green"))
        assert pool.withdraw({0, 1}) == {0, 1}, "all of them are being compiled"
        assert [number for number, _ in rest(pool, 1)] == [2]


def test_what_does_not_compile_never_meets_an_evaluator() -> None:
    with Pool(ObedientSpec(most=1, compile_s=0.0), workers=2) as pool:
        finished = dict(run(pool, ["uncompilable", "green", "uncompilable"]))
    assert [finished[n].outcome for n in range(3)] == ["UNCOMPILABLE", "GREEN", "UNCOMPILABLE"]
    assert finished[0].reason == "register limit"


def test_the_next_candidate_survives_the_death_of_the_process() -> None:
    """It was at hand in a process that died over another one."""
    before = children()
    with Pool(ObedientSpec(), workers=1) as pool:
        run(pool, ["green"])
        pool.submit(1, candidate("sleep 100"))
        pool.submit(2, candidate("green"))
        while "#1 demo: sleep" not in pool.activity()[0]:
            assert pool.wait(0.05) == []
        (victim,) = children() - before
        os.kill(victim, signal.SIGKILL)
        finished = dict(rest(pool, 2))
    assert finished[1].outcome == Outcome.CRASHED
    assert finished[2].outcome == Outcome.GREEN


def test_an_idle_evaluator_takes_a_candidate_again() -> None:
    """Past the compilers, which are busy; what is new is waited for no longer because of it."""
    with Pool(ObedientSpec(most=2, compile_s=2.0, build_s=0.2), workers=4) as pool:
        assert pool.idle == 0, "nobody has started"
        run(pool, ["green"])
        awaited(pool, 2)
        pool.submit(8, candidate("green"))
        pool.remeasure(3, candidate("sleep 0.2"), earlier=5)
        assert pool.idle == 1
        assert "#3 demo again" in " ".join(pool.activity())
        finished = rest(pool, 2)
        assert [(number, trial.counters["earlier"]) for number, trial in finished] == [(3, 5.0), (8, 0.0)]
        assert "ahead" not in finished[0][1].seconds
        assert pool.idle == 2


def test_evaluators_of_a_gpu_hear_of_the_best_time_that_any_of_them_measured() -> None:
    spec = ObedientSpec(most=2, compile_s=0.0)
    groups: dict[str, Builds] = {"GPU-a": spec, "GPU-b": spec}
    with Pool(spec, workers=4, groups=groups) as pool:
        awaited(pool, 4)

        def on(gpu: str, number: int, source: str) -> Trial:
            pool.remeasure_on(gpu, number, candidate(source), 1)
            ((_, trial),) = rest(pool, 1)
            return trial

        assert isnan(on("GPU-a", 1, "takes 5").counters["best_us"])
        for number, source in enumerate(["loses 3", "takes 4", "takes 6"], 2):
            on("GPU-a", number, source)
        for gpu, best_us in {"GPU-a": 4.0, "GPU-b": None}.items():
            for number in (8, 9):
                pool.remeasure_on(gpu, number, candidate("sleep 0.2"), 1)
            heard = [trial.counters for _, trial in rest(pool, 2)]
            assert len({one["pid"] for one in heard}) == 2, "both of this GPU"
            for one in heard:
                found = None if isnan(one["best_us"]) else one["best_us"]
                assert (found, one["compares"]) == (best_us, 1.0)


def test_before_a_gpu_the_others_start_when_the_first_has_started() -> None:
    before = children()
    with Pool(ObedientSpec(most=3, compile_s=0.0), workers=4) as pool:
        capacity = pool.capacity
        assert len(children() - before) == 1
        awaited(pool, 3)
        assert len(children() - before) == 3
        assert pool.capacity == capacity  # how many are under way does not hang on who has started


def test_the_others_prepare_themselves_beside_the_first(tmp_path: Path) -> None:
    before = children()
    with Pool(ObedientSpec(most=3, compile_s=0.0), workers=4, early=("obedient", str(tmp_path))) as pool:
        began = children() - before
        assert len(began) == 3
        assert sum("starting" in line for line in pool.activity()) == 1
        awaited(pool, 3)
        assert children() - before == began, "what has prepared itself evaluates"
        assert {int(file.name) for file in tmp_path.iterdir()} < began
        assert len(list(tmp_path.iterdir())) == 2


def test_the_others_start_beside_a_first_that_hangs() -> None:
    with Pool(ObedientSpec(most=2, compile_s=0.0), workers=2) as pool:
        for number, source in enumerate(["sleep 600", "green", "green"]):
            pool.submit(number, candidate(source))
        assert pool.wait(100.0)[0][0] > 0


def test_nobody_is_idle_who_is_waited_for() -> None:
    with Pool(ObedientSpec(), workers=2) as pool:  # nothing is compiled ahead of them
        run(pool, ["green"] * 4)
        assert pool.idle == 0


def test_a_visit_survives_the_death_of_the_process() -> None:
    with Pool(ObedientSpec(most=1, compile_s=0.0), workers=2) as pool:
        awaited(pool, 1)
        pool.remeasure(1, candidate("exit 1"), earlier=1)
        pool.remeasure(2, candidate("green"), earlier=7)
        assert pool.idle == 0
        finished = dict(rest(pool, 2))
    assert finished[1].outcome == Outcome.CRASHED
    assert (finished[2].outcome, finished[2].counters["earlier"]) == (Outcome.GREEN, 7.0)


def test_a_bug_stops_with_its_traceback() -> None:
    before = children()
    with Pool(ObedientSpec(), workers=1) as pool, pytest.raises(ChildError, match="a bug of ours") as caught:
        run(pool, ["green", "bug"])
    assert "ZeroDivisionError" in str(caught.value)
    assert "obedient.py" in str(caught.value)
    with Pool(ObedientSpec(compile_s=0.0), workers=1) as pool, pytest.raises(ZeroDivisionError):
        run(pool, ["bug ahead"])
    assert all_end(before)


def test_a_broken_machine_stops_with_its_hint() -> None:
    with Pool(ObedientSpec(), workers=1) as pool, pytest.raises(MachineError, match="disk is full") as caught:
        run(pool, ["machine"])
    assert caught.value.hint == "free some space"
    with Pool(ObedientSpec(broken="refuses"), workers=1) as pool, pytest.raises(MachineError, match="driver"):
        run(pool, ["green"])


def test_an_evaluator_that_never_starts() -> None:
    with Pool(ObedientSpec(broken="dies"), workers=1) as pool, pytest.raises(MachineError) as caught:
        run(pool, ["green"])
    assert "does not start" in caught.value.message
    assert "libfoo.so" in caught.value.hint


def test_an_evaluator_that_hangs_over_work_of_its_own_is_replaced() -> None:
    """No candidate is to blame, and none waits for it without end."""
    with Pool(ObedientSpec(broken="stuck"), workers=1, start_s=STARTS_S) as pool:
        ((_, first),) = run(pool, ["green"])
        time.sleep(1.0)  # now it has nothing to do
        ((_, second),) = run(pool, ["green"])
    assert (first.outcome, second.outcome) == ("GREEN", "GREEN")
    assert first.counters["pid"] != second.counters["pid"]


def test_a_leaking_worker_is_replaced() -> None:
    with Pool(ObedientSpec(small=True), workers=1) as pool:
        finished = dict(run(pool, ["leak 100", "leak 600", "green"]))
    assert all(trial.outcome == Outcome.GREEN for trial in finished.values())
    assert finished[0].counters["pid"] == finished[1].counters["pid"] != finished[2].counters["pid"]


def test_what_a_kernel_prints_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    with Pool(ObedientSpec(), workers=1) as pool:
        finished = dict(run(pool, ["print 3", "green"]))
    assert finished[0].outcome == Outcome.GREEN
    out, err = capfd.readouterr()
    assert "xxx" not in out + err


def test_activity_says_what_everyone_does() -> None:
    with Pool(ObedientSpec(most=1, compile_s=1.0, build_s=0.3), workers=2) as pool:
        assert pool.activity()[0].startswith("evaluator: starting")
        for number in range(2):
            pool.submit(number, candidate("sleep 2"))
        seen, ended = set(), 0
        while not any("#0 demo: compile" in line for line in pool.activity()):
            assert pool.wait(0.01) == []
        while ended < 2:
            ended += len(pool.wait(0.05))
            seen.add(pool.activity()[0].rpartition(":")[0])
        assert "#0 demo" in seen
        assert pool.activity() == ["evaluator: idle", "compiler: idle", "compiler: idle"]


def test_wait_keeps_to_its_time() -> None:
    with Pool(ObedientSpec(), workers=1) as pool:
        run(pool, ["green"])
        begin = time.monotonic()
        assert pool.wait(0.3) == []
        assert 0.25 < time.monotonic() - begin < 20
        pool.submit(1, candidate("sleep 100"))
        assert pool.wait(0.0) == []


def test_closing_gives_up_what_is_under_way() -> None:
    before = children()
    pool = Pool(ObedientSpec(compile_s=0.1), workers=3)
    for number in range(6):
        pool.submit(number, candidate("hang"))
    pool.wait(1.0)
    begin = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - begin < 20, "a hang takes eleven days"
    assert all_end(before)


SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
from obedient import ObedientSpec, candidate, children
from evo.evaluate.pool import Pool
with Pool(ObedientSpec(), workers=2) as pool:
    try:
        for number in range(2):
            pool.submit(number, candidate("hang"))
        while not all("gate" in line for line in pool.activity()):
            pool.wait(0.05)
        print(*children(), flush=True)
        while True:
            pool.wait(0.2)
    except KeyboardInterrupt:
        assert pool.wait(0.5) == []  # the workers did not hear the Ctrl-C
        print("interrupted", flush=True)
"""


def script() -> subprocess.Popen[str]:
    program = textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent)))
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def gone(pid: int, limit_s: float = 30.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        # (an orphan's zombie is the system's to reap)
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_reaches_the_parent_alone() -> None:
    with script() as parent:
        assert parent.stdout
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: the whole group gets it
        assert parent.stdout.readline().strip() == "interrupted"
        assert parent.wait(60) == 0
    assert all(gone(pid) for pid in workers)


def test_pool_do_not_outlive_a_killed_parent() -> None:
    with script() as parent:
        assert parent.stdout
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
        parent.wait()
    assert all(gone(pid) for pid in workers)
