"""A confirmation that is killed goes on where it stood: kill -9 amid its rounds, and once more. On a GPU.

    python benchmarks/killed_confirm.py STUDY --database runs/evo.db --commit COMMIT --out killed-h200.json

Works on a copy of the database. Exit 1 where the second run did not keep what the first one had stored.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from evo.store import Store

KILLED_AFTER = 3
"""Rounds."""
NEW_ROUNDS = "SELECT count(*) FROM rounds WHERE confirmation_id > ?"
PROGRAM = "import sys; sys.argv[0]='evo'; from evo.cli import main; sys.exit(main())"


def rounds_of(database: Path, study: str) -> tuple[int, list[tuple[int, str]]]:
    """The newest confirmation's id, and seed and contestants' times of each of its warm rounds."""
    with Store(database) as store:
        found = store.confirmations.newest(store.study(study))
        if found is None:
            return 0, []
        taken = store.confirmations.rounds(found, "warm")
        return found.id, [(r.seed, json.dumps(dict(r.samples_us), sort_keys=True)) for r in taken]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("--database", type=Path, default=Path("runs/evo.db"))
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "evo.db"
        with sqlite3.connect(options.database) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        with closing(sqlite3.connect(copy)) as watched:
            before = watched.execute("SELECT coalesce(max(id), 0) FROM confirmations").fetchone()[0]
        words = ["confirm", options.study, "--top", "1", "--json", "--database", str(copy)]
        command = [sys.executable, "-c", PROGRAM, *words]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with closing(sqlite3.connect(copy, timeout=60)) as watched:
            while watched.execute(NEW_ROUNDS, (before,)).fetchone()[0] < KILLED_AFTER:
                if process.poll() is not None:
                    break
                time.sleep(0.005)
        process.kill()
        killed_s = time.perf_counter() - begin
        status = process.wait()
        number, kept = rounds_of(copy, options.study)
        begin = time.perf_counter()
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        again, taken = rounds_of(copy, options.study)
    record = {
        "command": f"python benchmarks/killed_confirm.py {options.study} --database {options.database}",
        "commit": options.commit, "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": told["device"], "versions": told["versions"],
        "protocol": "evo confirm --top 1, kill -9 by the rounds that are stored, and the same command again",
        "killed": {"status": status, "after_s": killed_s, "rounds": len(kept)},
        "went_on": {"s": time.perf_counter() - begin, "rounds": len(taken), "status": told["status"]},
        "same_confirmation": number == again, "rounds_kept": taken[: len(kept)] == kept,
        "finalist": told["finalists"][0],
    }  # fmt: skip
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(record["killed"], record["went_on"], record["same_confirmation"], record["rounds_kept"])
    return 0 if status == -9 and number == again != before and taken[: len(kept)] == kept else 1


if __name__ == "__main__":
    sys.exit(main())
