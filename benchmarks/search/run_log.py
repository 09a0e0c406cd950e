"""Every run of a replay, kept in a file as it comes, so that a replay goes on where it stopped."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.search.runs import THEIRS, Batch, Job, Run, opened, perform

SLOW = ("hybrid_vndx", "nsga2", "bayes_opt", "tpe-plain")
"""Those that take longest, up to a minute a run: begun first."""
SEEDS_A_JOB = 10
"""Of Kernel Tuner's, of which each process builds the space anew; a fifth of that where they are slow."""


class RunLog:
    """Every run, by its job; kept in a file, where there is one, as it comes. A space that was recorded anew
    is another."""

    def __init__(self, file: Path | None, made_at: str) -> None:
        self._file, self._commit = file, made_at
        self._runs: dict[tuple[str, str, int], tuple[Run, dict[str, str]]] = {}
        self.kernel_tuner = ""
        if file and file.exists():
            for line in file.read_text().splitlines():
                said = json.loads(line)
                self._note((said["strategy"], said["space"], said["seed"]), Run(**said["run"]), said["by"])

    def has(self, job: Job) -> bool:
        return self._key(job) in self._runs

    def run(self, job: Job) -> Run:
        return self._runs[self._key(job)][0]

    def made_by(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Commits and machines, and what ran there."""
        found: dict[str, set[str]] = {}
        for job in filter(self.has, jobs):
            found.setdefault(json.dumps(self._runs[self._key(job)][1]), set()).add(job[0])
        return [json.loads(by) | {"strategies": sorted(names)} for by, names in found.items()]

    def fill(self, jobs: Sequence[Job], python: str | None, processes: int) -> None:
        """Runs `jobs` side by side, the longest first."""
        here = {
            "commit": self._commit,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}",
        }
        batches: dict[tuple[str, str, int], list[int]] = {}
        slow = {name for name, *_ in jobs if name.removeprefix(THEIRS) in SLOW}
        for name, path, seed in jobs:
            if name.startswith(THEIRS):
                size = SEEDS_A_JOB // 5 if name in slow else SEEDS_A_JOB
                batches.setdefault((name, path, seed // size), []).append(seed)
        works: list[tuple[str, str, Job | Batch]] = [
            (name, path, (python or "", (name, path), few)) for (name, path, _), few in batches.items()
        ]
        works += [(job[0], job[1], job) for job in jobs if not job[0].startswith(THEIRS)]
        works.sort(key=lambda work: (work[0] not in slow, -len(opened(work[1])[0])))
        with get_context("spawn").Pool(processes) as pool:
            for done in pool.imap_unordered(perform, [work for _, _, work in works]):
                for job, run, kernel_tuner in done:
                    self._keep(job, run, here | ({"kernel-tuner": kernel_tuner} if kernel_tuner else {}))

    def _keep(self, job: Job, run: Run, by: dict[str, str]) -> None:
        name, space, seed = self._key(job)
        self._note((name, space, seed), run, by)
        if self._file:
            line = {"strategy": name, "space": space, "seed": seed, "by": by, "run": asdict(run)}
            with self._file.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _note(self, key: tuple[str, str, int], run: Run, by: dict[str, str]) -> None:
        self._runs[key] = run, by
        self.kernel_tuner = by.get("kernel-tuner", self.kernel_tuner)

    @staticmethod
    def _key(job: Job) -> tuple[str, str, int]:
        name, path, seed = job
        return name, opened(path)[0].fingerprint, seed
