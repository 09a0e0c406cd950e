"""A supervised child, with real processes: it answers, hangs, dies, prints, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from multiprocessing.connection import wait as wait_for
from pathlib import Path

import psutil
import pytest

from evo.child import Answer, Child, ChildError, Command, Report, Said
from evo.errors import Crashed, Hung, MachineError, Red

LONG_S = 120.0
"""A limit that is met only where something waits for ever, however busy the machine is."""
MUCH = b"m" * (8 << 20)
"""More than a pipe holds."""


class Obedient:
    """The program of these tests: a method for each thing that can happen to one."""

    def __init__(self, spec: str, report: Report) -> None:
        self.usable = True
        self._report = report
        if spec == "no driver":
            raise MachineError("no NVIDIA driver", "use the emulator")
        if spec == "dies":
            sys.exit("libfoo.so not found")
        time.sleep(float(spec or 0))

    def twice(self, number: int) -> int:
        return 2 * number

    def pid(self) -> int:
        return os.getpid()

    def until(self, file: Path) -> None:
        end = time.monotonic() + LONG_S
        while not file.exists():
            assert time.monotonic() < end
            time.sleep(0.01)

    def sleep(self, seconds: float) -> str:
        self._report(("sleeping", seconds))
        time.sleep(seconds)
        return "slept"

    def leave(self, status: int) -> None:
        print("last words")
        os._exit(status)

    def suicide(self, number: int) -> None:
        print("not flushed by anybody")
        os.kill(os.getpid(), number)

    def refuse(self) -> None:
        raise Red("race", "two threads", "k.cu:3")

    def bug(self) -> None:
        raise ZeroDivisionError

    def lambdas(self) -> object:
        return lambda: None

    def retire(self) -> str:
        self.usable = False
        return "the last one"

    def write(self, count: int) -> tuple[int, int]:
        """As a kernel's printf does: past Python, and without asking whether it went well."""
        lost = 0
        for _ in range(count):
            try:
                os.write(1, b"x" * 1000)
            except OSError:
                lost += 1
        return lost, os.fstat(1).st_size

    def limits(self) -> tuple[int, bool]:
        import resource

        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        return resource.getrlimit(resource.RLIMIT_CORE)[0], ignored


@pytest.fixture
def child() -> Iterator[Child]:
    with Child(Obedient, "") as child:
        yield child


def test_questions_are_answered_in_one_process(child: Child) -> None:
    assert [child.ask("twice", number, deadline=LONG_S) for number in (1, 21)] == [2, 42]
    assert child.ask("pid", deadline=LONG_S) == child.ask("pid", deadline=LONG_S) == child.pid != os.getpid()
    assert child.ask("limits", deadline=LONG_S) == (0, True)
    assert child.status is None


def test_no_answer_before_the_deadline_is_hung(child: Child) -> None:
    began = time.monotonic()
    with pytest.raises(Hung) as caught:
        child.ask("sleep", 10 * LONG_S, deadline=0.5)
    assert (caught.value.reason, caught.value.detail) == ("deadline", "no answer within 0.5 s")
    assert time.monotonic() - began < LONG_S
    assert child.dead
    assert not psutil.pid_exists(child.pid)


def test_starting_is_no_part_of_a_deadline_but_has_its_own() -> None:
    with Child(Obedient, "4") as slow:
        assert slow.ask("twice", 2, deadline=3.5) == 4
    with Child(Obedient, "600", start_s=0.5) as never, pytest.raises(Hung, match="while starting") as caught:
        never.ask("twice", 2, deadline=LONG_S)
    assert caught.value.detail == "no answer within 0.5 s, while starting"


def test_a_death_is_crashed_with_its_last_words() -> None:
    for method, value, reason, words in (
        ("leave", 3, "exit code 3", "last words"),
        ("suicide", signal.SIGSEGV, "killed by SIGSEGV", "not flushed by anybody"),
        ("suicide", signal.SIGKILL, "killed by SIGKILL", "not flushed by anybody"),
    ):
        with Child(Obedient, "") as child:
            child.ask("write", 3, deadline=LONG_S)
            with pytest.raises(Crashed) as caught:
                child.ask(method, int(value), deadline=LONG_S)
            assert (caught.value.reason, caught.value.detail) == (reason, words)
            with pytest.raises(OSError, match="closed"):
                child.fileno()


def test_a_program_that_is_not_made() -> None:
    with Child(Obedient, "no driver") as child, pytest.raises(MachineError, match="driver") as refused:
        child.ask("twice", 1, deadline=LONG_S)
    assert refused.value.hint == "use the emulator"
    with Child(Obedient, "dies") as child, pytest.raises(Crashed, match="exit code 1") as died:
        child.ask("twice", 1, deadline=LONG_S)
    assert "libfoo.so not found" in died.value.detail
    with Child(Obedient, "a word") as child, pytest.raises(ChildError, match="could not convert string"):
        child.ask("twice", 1, deadline=LONG_S)


def test_what_a_method_raises_is_raised_here_and_the_child_lives(child: Child) -> None:
    with pytest.raises(Red) as red:
        child.ask("refuse", deadline=LONG_S)
    assert (red.value.reason, red.value.where) == ("race", "k.cu:3")
    with pytest.raises(ChildError, match="ZeroDivisionError") as bug:
        child.ask("bug", deadline=LONG_S)
    assert "test_child.py" in str(bug.value)
    with pytest.raises(ChildError, match="lambda"):
        child.ask("lambdas", deadline=LONG_S)
    assert child.ask("twice", 3, deadline=LONG_S) == 6


def test_two_questions_at_hand_and_reports_in_between(child: Child) -> None:
    child.send("sleep", 0.2)
    child.send("twice", 5)
    heard: list[object] = []
    end = time.monotonic() + LONG_S
    while len(heard) < 3:
        assert wait_for([child.fileno()], end - time.monotonic())
        heard += [m.what if isinstance(m, Said) else m.value for m in child.receive()]
    assert heard == [("sleeping", 0.2), "slept", 10]
    assert child.ready


def test_nobody_waits_for_what_is_only_told(child: Child, tmp_path: Path) -> None:
    """What is told ends only when a file is there, which is made after it was told."""
    child.tell("until", tmp_path / "told")
    child.tell("twice", 1)
    (tmp_path / "told").touch()
    assert child.ask("twice", 3, deadline=LONG_S) == 6
    assert child.ask("twice", 4, deadline=LONG_S) == 8


def test_nobody_waits_until_much_that_is_told_is_read(child: Child, tmp_path: Path) -> None:
    """The process reads it only when a file is there, which is made after it was told."""
    child.tell("until", tmp_path / "told")
    child.tell("twice", MUCH)
    child.tell("twice", 1)
    (tmp_path / "told").touch()
    assert child.ask("twice", 3, deadline=LONG_S) == 6


def test_what_is_told_and_not_read_yet_delays_no_end(tmp_path: Path) -> None:
    with Child(Obedient, "") as child:
        child.tell("until", tmp_path / "never")
        child.tell("twice", MUCH)
    assert child.status == -signal.SIGKILL, "it was still waiting"


def test_a_program_that_is_used_up_ends_after_its_answer(child: Child) -> None:
    child.send("retire")
    child.send("twice", 1)
    assert child.death().reason == "exit code 0"
    assert [(m.value, m.last) for m in child.receive() if isinstance(m, Answer)] == [("the last one", True)]


def test_an_answer_is_heard_even_if_the_process_died_meanwhile(child: Child) -> None:
    child.send("retire")
    end = time.monotonic() + LONG_S
    while not child.dead:  # it is still there for a moment when its answer has come
        assert time.monotonic() < end
        time.sleep(0.01)
    assert child.ask("twice", 1, deadline=LONG_S) == "the last one"


def test_output_beyond_the_limit_is_lost_and_earlier_output_forgotten() -> None:
    with Child(Obedient, "", file_bytes=10_000) as child:
        assert child.ask("write", 30, deadline=LONG_S) == (20, 10_000)
        assert child.ask("write", 5, deadline=LONG_S) == (0, 5_000)  # for every question anew
        with pytest.raises(Crashed) as caught:
            child.ask("leave", 1, deadline=LONG_S)
        assert caught.value.detail == "last words"


def test_a_file_can_be_the_program_of_a_bare_process(tmp_path: Path) -> None:
    file = tmp_path / "adds.py"
    file.write_text(
        "import sys\n"
        "class Adds:\n"
        "    def __init__(self, spec, report):\n"
        "        self.spec = spec\n"
        "    def add(self, number):\n"
        "        return self.spec + number, 'numpy' in sys.modules or 'site' in sys.modules\n"
        "program = Adds\n"
    )
    with Child(file, 40) as child:
        assert child.ask("add", 2, deadline=LONG_S) == (42, False)


# ---- Ctrl-C, and the parent's death


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from test_child import Obedient
from evo.child import Child
with Child(Obedient, {spec!r}) as child:
    try:
        print(child.pid, flush=True)
        child.ask("sleep", 600, deadline=600)
    except KeyboardInterrupt:
        print("interrupted", child.dead, flush=True)
"""


def parent(spec: str = "") -> subprocess.Popen[str]:
    program = textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent), spec=spec))
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def gone(pid: int, limit_s: float = 30.0) -> bool:
    """Whether it ends in time (an orphan's zombie is the system's to reap)."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_ctrl_c_is_the_parents_to_handle(after_s: float) -> None:
    """From the first moment on: a child that only starts does not hear it either."""
    with parent() as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        time.sleep(after_s)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group gets it
        assert process.stdout.readline() == "interrupted False\n"
        assert process.wait(LONG_S) == 0
    assert gone(pid)


@pytest.mark.parametrize("spec", ["", "600"])
def test_a_child_ends_with_its_parent(spec: str) -> None:
    """While it answers, and while it starts."""
    with parent(spec) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        time.sleep(1.0)
        assert psutil.pid_exists(pid)
        process.kill()
        process.wait()
    assert gone(pid)


# ---- commands


def test_a_command_runs_to_its_end(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo said $WORD; pwd; echo wrong >&2; exit 3"]
    status, said = Command(words, cwd=tmp_path, env={"WORD": "so"}).wait(LONG_S)
    assert (status, said) == (3, f"said so\n{tmp_path}\nwrong\n")


def test_a_command_that_is_late_is_gone_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within 3 s"):
        Command(["sh", "-c", f"sleep 600 & echo $! > {note}; wait"]).wait(3.0)
    assert time.monotonic() - began < LONG_S
    assert gone(int(note.read_text()))


class Spare:
    """Counts the pieces of work that it did while no question was there."""

    def __init__(self, pieces: int, _report: Report) -> None:
        self._left = pieces
        self._done = 0

    def meanwhile(self) -> bool:
        self._left -= 1
        self._done += 1
        return self._left > 0

    def done(self) -> int:
        return self._done


def test_spare_time_is_used_until_nothing_is_left() -> None:
    with Child(Spare, 3) as child:
        while not child.ready:
            list(child.receive())
        done, end = 0, time.monotonic() + LONG_S
        while done < 3 and time.monotonic() < end:
            time.sleep(0.05)
            done = child.ask("done", deadline=LONG_S)
        assert done >= 3  # a program that has said no is asked again after each question


class Failing(Spare):
    def meanwhile(self) -> bool:
        raise MachineError("no room")


def asked_again(child: Child) -> None:
    for _ in range(200):
        child.ask("done", deadline=LONG_S)
        time.sleep(0.05)


def test_what_fails_in_spare_time_is_raised_by_the_parent() -> None:
    with Child(Failing, 1) as child, pytest.raises(MachineError, match="no room"):
        asked_again(child)
