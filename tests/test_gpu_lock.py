"""The lock of a GPU: gates beside each other, a timing alone; a process that dies lets go."""

from __future__ import annotations

import fcntl
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evo.device.gpu_lock import GpuLock, lock_of


def _hold(folder: Path, how: str, held: Any) -> None:
    with getattr(GpuLock("GPU-x", folder), how)():
        held.send(True)
        time.sleep(60)


def _waiting(folder: Path, how: str, done: list[str]) -> threading.Thread:
    """A thread that asks for the lock, notes that it had it, and ends."""

    def take() -> None:
        with getattr(GpuLock("GPU-x", folder), how)():
            done.append(how)

    thread = threading.Thread(target=take)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("held", "asked", "both"),
    [
        ("beside", "beside", True),
        ("beside", "alone", False),
        ("alone", "beside", False),
        ("alone", "alone", False),
    ],
)
def test_one_alone_or_several_beside_each_other(tmp_path: Path, held: str, asked: str, both: bool) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=_hold, args=(tmp_path, held, theirs))
    other.start()
    try:
        assert ours.poll(120)
        done: list[str] = []
        waiting = _waiting(tmp_path, asked, done)
        waiting.join(30 if both else 0.3)
        assert bool(done) == both
        other.kill()  # a process that dies with the lock gives it back
        waiting.join(60)
        assert done
    finally:
        other.kill()
        other.join()


@pytest.mark.parametrize("how", ["beside", "alone"])
def test_a_fork_that_outlives_the_turn_does_not_keep_the_lock(tmp_path: Path, how: str) -> None:
    with getattr(GpuLock("GPU-x", tmp_path), how)():
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        fork.start()
    try:
        done: list[str] = []
        _waiting(tmp_path, "alone", done).join(30)
        assert done
    finally:
        fork.kill()
        fork.join()


def test_who_waits_to_be_alone_is_not_overtaken(tmp_path: Path) -> None:
    done: list[str] = []
    with GpuLock("GPU-x", tmp_path).beside():
        alone = _waiting(tmp_path, "alone", done)
        while not _somebody_waits(tmp_path):
            time.sleep(0.01)
        late = _waiting(tmp_path, "beside", done)  # it could run beside us, but came later
        time.sleep(0.2)
        assert done == []
    alone.join(60)
    late.join(60)
    assert done == ["alone", "beside"]


def test_who_works_beside_others_gives_way_between_two_pieces_of_work(tmp_path: Path) -> None:
    lock, done = GpuLock("GPU-x", tmp_path), list[str]()

    @contextmanager
    def waits() -> Iterator[None]:
        done.append("waits")
        yield
        done.append("goes on")

    with lock.beside():
        lock.give_way(lambda: done.append("finished"), waits)  # nobody asks
        alone = _waiting(tmp_path, "alone", done)
        while not _somebody_waits(tmp_path):
            time.sleep(0.01)
        assert done == []
        lock.give_way(lambda: done.append("finished"), waits)
        assert done == ["finished", "waits", "alone", "goes on"]
        alone.join(60)
        beside = _waiting(tmp_path, "beside", done)  # it is still beside others, and no more than that
        beside.join(60)
        assert done.pop() == "beside"
        late = _waiting(tmp_path, "alone", done)
        late.join(0.2)
        assert done.pop() == "goes on"
    late.join(60)
    with lock.alone():
        lock.give_way(lambda: done.append("finished"), waits)  # who is alone is in nobody's way
    assert done[-1] == "alone"


def test_what_waits_is_told_for_as_long_as_it_waits(tmp_path: Path) -> None:
    lock, told = GpuLock("GPU-x", tmp_path), list[str]()

    @contextmanager
    def waits() -> Iterator[None]:
        told.append("waits")
        yield
        told.append("has it")

    with lock.alone(waits), lock.beside(waits):
        assert told == ["waits", "has it"]
    with lock.beside(waits):
        assert told == ["waits", "has it"] * 2


def test_gates_that_ask_at_the_same_time_are_not_taken_for_somebody_who_waits(tmp_path: Path) -> None:
    lock, done = GpuLock("GPU-x", tmp_path), list[str]()

    def finish() -> None:
        done.append("finished")
        fcntl.flock(another_asks, fcntl.LOCK_UN)

    with lock.beside(), (tmp_path / "evo-GPU-x.queue").open() as another_asks:
        fcntl.flock(another_asks, fcntl.LOCK_SH)
        lock.give_way(finish)
    assert done == []


def _somebody_waits(folder: Path) -> bool:
    with (folder / "evo-GPU-x.queue").open() as queue:
        try:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_thread_that_has_the_lock_does_not_wait_for_itself(tmp_path: Path) -> None:
    lock, done = GpuLock("GPU-x", tmp_path), list[str]()
    with lock.alone(), lock.beside(), lock.alone():
        outside = _waiting(tmp_path, "beside", done)
        outside.join(0.2)
        assert done == []
    outside.join(60)
    with lock.beside(), lock.beside(), pytest.raises(RuntimeError, match="cannot ask"), lock.alone():
        pass
    with pytest.raises(ValueError, match="inside"), lock.alone():
        raise ValueError("inside")
    with GpuLock("GPU-x", tmp_path).alone():  # it was given back
        pass


def test_the_files_lie_where_every_user_can_reach_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock_of.cache_clear()
    with lock_of("GPU-x").alone():
        assert sorted(path.name for path in tmp_path.iterdir()) == ["evo-GPU-x.lock", "evo-GPU-x.queue"]
    assert lock_of("GPU-x") is lock_of("GPU-x")
    lock_of.cache_clear()
