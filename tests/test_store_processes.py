"""Several processes at one database, and how much room it takes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from times import timing
from trials import PROBLEM, study, timed

from evo.errors import UsageError
from evo.store import Store
from evo.trial import (
    CaseError,
    Interval,
)


def test_a_study_is_searched_by_one_process_at_a_time(store: Store, url: str) -> None:
    mine = store.create(study())
    script = (
        "import sys, time; from evo.store import Store\n"
        "store = Store(sys.argv[1]); store.claim(store.study('mission-1'), 4)\n"
        "print('claimed', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(UsageError, match="is being searched"):
            store.claim(mine, 3, budget_s=999.0, rate=9.0)
        assert (store.study("mission-1").budget_s, store.study("mission-1").rate) == (
            mine.budget_s,
            mine.rate,
        )
    finally:
        other.kill()
        other.communicate()
    assert store.claim(mine, 3).status == "running"
    assert store.claim(mine, 3).status == "running", "this process has it already"
    store.release(mine, "interrupted", 12.5)
    assert (store.study("mission-1").status, store.study("mission-1").spent_s) == ("interrupted", 12.5)


def test_a_process_that_cannot_be_seen_from_here_is_believed_for_a_minute(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another container has a process id that says nothing here, and may have our host name."""
    mine = store.create(study())
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("evo.store.owner._here", lambda: f"{socket.gethostname()} boot/pid:[1]")
        elsewhere.setattr("os.getpid", lambda: 2**22 + 1)
        store.claim(mine, 3)
    with pytest.raises(UsageError, match=f"by {socket.gethostname()} process {2**22 + 1}") as caught:
        store.claim(mine, 3)
    assert "free 60 s after it died" in caught.value.hint
    with monkeypatch.context() as later:
        now = time.time()
        later.setattr("evo.store.owner.time.time", lambda: now + 61)
        assert store.claim(mine, 3).status == "running"


def test_a_study_whose_process_was_killed_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "evo.db"
    with Store(path) as store:
        mine = store.create(study())
        claims = "import sys; from evo.store import Store; s = Store(sys.argv[1])\n"
        claims += "print(s.claim(s.study('mission-1'), 1).status, flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", claims, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "running"
            assert store.study(mine.name).status == "running"
            process.kill()
            process.wait()
        before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
        assert [one.status for one in store.studies()] == ["interrupted"]
        assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before, "nothing is written"


def test_a_search_in_another_pid_namespace_is_refused(tmp_path: Path) -> None:
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*inside, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("a namespace of process ids cannot be made here (it takes root)")
    with Store(tmp_path / "evo.db") as store:
        mine = store.create(study())
        store.claim(mine, 1)
        claims = (
            "import sys; from evo.store import Store\n"
            "store = Store(sys.argv[1]); store.claim(store.study('mission-1'), 1)"
        )
        command = [*inside, sys.executable, "-c", claims, str(tmp_path / "evo.db")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "UsageError" in done.stderr
        assert "is being searched or confirmed by" in done.stderr
        store.release(mine, "interrupted", 1.0)
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
        with pytest.raises(UsageError, match="is being searched"):  # it died at once, but who can tell?
            store.claim(mine, 1)


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from trials import study, timed
from evo.store import Store
name, count = sys.argv[2], int(sys.argv[4])
with Store(sys.argv[1]) as store:
    mine = store.create(study(name))
    for number in range(count):
        store.add(mine, number, timed(number), spent_s=float(number))
"""


def test_two_writers_and_a_reader_are_never_locked_out(url: str) -> None:
    # the writers also race to make the database
    command = [sys.executable, "-c", WRITER, url]
    here = str(Path(__file__).parent)
    writers = [
        subprocess.Popen([*command, name, here, "60"], stderr=subprocess.PIPE, text=True)
        for name in ("a-1", "b-1")
    ]
    reads = 0
    with Store(url) as reader:
        while any(writer.poll() is None for writer in writers):
            reader.leaderboard(limit=10)
            reads += 1
            time.sleep(0.005)
        problems = [writer.communicate()[1] for writer in writers]
        assert problems == ["", ""]
        assert reads > 5
        for name in ("a-1", "b-1"):
            assert [row.number for row in reader.rows(reader.study(name))] == list(range(60))
            assert reader.trial(f"{name}/59") == timed(59)


def test_a_trial_takes_little_room(tmp_path: Path) -> None:
    with Store(tmp_path / "evo.db") as store:
        mine = store.create(study())
        for number in range(100):
            errors = tuple(CaseError(PROBLEM.key, "normal", seed, 0.00123 * seed, 0.02) for seed in range(24))
            samples = tuple(8 + (number * k % 97) / 1000 for k in range(500))
            measured = timing(samples, 8.0, Interval(7.9, 8.1))
            store.add(mine, number, timed(number, errors=errors, timing=measured))
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) / 100 < 20_000
