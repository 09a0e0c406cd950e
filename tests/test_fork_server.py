"""Processes that are forked from one which has imported torch: real ones, and a real server."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from test_child import LONG_S, Obedient

from evo.child import Child
from evo.errors import Crashed, Hung, MachineError
from evo.fork_server import Forked, can_fork, server_pid

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system has no pidfd")


class Surroundings:
    """What a child sees."""

    def __init__(self, spec: object, _report: object) -> None:
        self.spec = spec

    def seen(self) -> dict[str, object]:
        return {
            "torch": "torch" in sys.modules,
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "word": os.environ.get("EVO_TEST_WORD"),
            "gone": os.environ.get("EVO_TEST_GONE"),
            "folder": str(Path.cwd()),
            "cores": os.sched_getaffinity(0),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
            "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "ignored": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
            "path": sys.path[0],
        }


def forked(spec: object = "", **words: object) -> Child:
    return Child(Obedient, spec, spare=Forked(), **words)  # type: ignore[arg-type]


def test_it_answers_and_its_end_is_told() -> None:
    with forked() as child:
        assert child.ask("twice", 21, deadline=LONG_S) == 42
        assert child.ask("pid", deadline=LONG_S) == child.pid
        assert psutil.Process(child.pid).ppid() == server_pid()
        assert child.status is None
        assert child.ask("retire", deadline=LONG_S) == "the last one"
        end = time.monotonic() + LONG_S
        while child.status is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert child.status == 0
    assert not psutil.pid_exists(child.pid), "nothing of it is left"


@pytest.mark.parametrize(
    ("method", "value", "reason", "said"),
    [
        ("leave", 3, "exit code 3", "last words"),
        ("suicide", signal.SIGSEGV, "killed by SIGSEGV", ""),
        ("suicide", signal.SIGKILL, "killed by SIGKILL", ""),
    ],
)
def test_a_death_is_crashed_with_its_last_words(method: str, value: int, reason: str, said: str) -> None:
    with forked() as child, pytest.raises(Crashed) as died:
        child.ask(method, value, deadline=LONG_S)
    assert died.value.reason == reason
    assert said in died.value.detail


def test_one_that_hangs_is_ended_and_what_a_program_raises_is_raised() -> None:
    with forked() as child, pytest.raises(Hung):
        child.ask("sleep", 10 * LONG_S, deadline=0.5)
    assert not psutil.pid_exists(child.pid)
    with forked("no driver") as child, pytest.raises(MachineError, match="driver"):
        child.ask("twice", 1, deadline=LONG_S)


def test_it_has_what_the_parent_has_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_TEST_GONE", "there when the server begins")
    with forked() as child:
        child.ask("twice", 1, deadline=LONG_S)
    monkeypatch.delenv("EVO_TEST_GONE")
    monkeypatch.setenv("EVO_TEST_WORD", "new")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cores = os.sched_getaffinity(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
    os.sched_setaffinity(0, {min(cores)})
    try:
        with Child(Surroundings, "", spare=Forked(env={"EVO_TEST_GONE": "not"})) as child:
            first = child.ask("seen", deadline=LONG_S)
        with Child(Surroundings, "", spare=Forked()) as child:
            seen = child.ask("seen", deadline=LONG_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.sched_setaffinity(0, cores)
    assert (first["word"], first["gone"]) == ("new", "not")
    assert (seen["word"], seen["gone"]) == ("new", None)
    assert (seen["folder"], seen["path"]) == (str(tmp_path), str(tmp_path / "modules"))
    assert (seen["cores"], seen["files"], seen["core"]) == ({min(cores)}, (soft - 7, hard), 0)
    assert seen["torch"]
    assert seen["ignored"]
    assert seen["threads"] == 2, "itself, and what looks whether the parent lives"
    assert seen["descriptors"] == first["descriptors"], "none is inherited"


def test_many_begin_at_once_and_each_is_its_own() -> None:
    children = [forked() for _ in range(6)]
    try:
        for child in children:
            child.send("sleep", 0.2)
        assert len({child.pid for child in children}) == 6
        assert [child.ask("twice", n, deadline=LONG_S) for n, child in enumerate(children)] == ["slept"] * 6
    finally:
        for child in children:
            child.close()


def test_one_that_is_given_up_before_it_is_forked_never_is() -> None:
    with forked() as child:  # the server has begun
        child.ask("twice", 1, deadline=LONG_S)
        server = psutil.Process(server_pid())
        server.suspend()
        try:
            Forked().close()
        finally:
            server.resume()
        with forked() as later:
            later.ask("twice", 1, deadline=LONG_S)
            assert {one.pid for one in server.children()} == {child.pid, later.pid}


def test_where_the_server_dies_its_children_end_and_there_is_another() -> None:
    with forked() as child:
        child.ask("twice", 1, deadline=LONG_S)
        old = server_pid()
        assert old
        os.kill(old, signal.SIGKILL)
        with pytest.raises(Crashed, match="SIGKILL"):
            child.ask("sleep", LONG_S, deadline=LONG_S)
    with forked() as child:
        assert child.ask("twice", 2, deadline=LONG_S) == 4
        assert server_pid() not in (None, old)


SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
from test_child import Obedient
from evo.child import Child
from evo.fork_server import Forked, server_pid
child = Child(Obedient, "", spare=Forked())
child.ask("twice", 1, deadline=100)
print(server_pid(), child.pid, flush=True)
child.ask("sleep", 1000, deadline=1000)
"""


def test_nothing_outlives_a_killed_parent() -> None:
    script = textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parent)))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    with parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    end = time.monotonic() + LONG_S
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)
