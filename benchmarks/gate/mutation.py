"""Mutation testing of the gate: what it refuses of the mutants of correct kernels.

Each template's default kernel of each `--task`, on the emulator; it stands for an L4, or for an H200 where
the template needs one. Attention is tried at the mission's shape, causal and not; row kernels at a small one,
for the gate tries their tails on problems of its own. A sample of `--mutants` of executed statements has
every kind, as evenly as there are mutants of it. The steps, over all cores:

1. each through the check for candidates, at one seed; of those that pass, ptxas tells what is the same
   machine code, which is not counted;
2. each survivor beside the original, bit for bit, on inputs of the check for candidates at other seeds;
3. each survivor through the check for finalists: one that no argument covers (`mutation_judged.py`) at all
   `--seeds`; then the others, one seed after the other, until `--seconds` have passed since the start.

What has been tried is kept in the folder `--state`, so that a run that was ended goes on where it was; a
kernel whose PTX, problem or checks have changed begins anew. Written: the scores, and each survivor with its
line, how the check for finalists ended at each seed, and why it is no other kernel. What no argument covers,
or what does not do as the argument says, counts as wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import evo
from benchmarks.gate.mutation_judged import judged
from benchmarks.record import ROOT, commit_and_clean
from evo.cache import default_folder
from evo.cores import usable_cores
from evo.device.open import gpu_that_runs
from evo.selftest.mutant_results import MutantResult, MutationTarget, in_order, record
from evo.selftest.mutants import Attempt, MutationRun, Workers
from evo.selftest.mutation import Mutant
from evo.task import Task, load_task
from evo.template import load_template
from evo.trial import Outcome, Problem

PROTOCOL = """PTX mutants of each template's default kernel through the check for candidates at seed 0, the
survivors through the check for finalists, on the emulator; each row names the commit of the sources that it
is of"""
GPU = False
FAST = ("flash_mma", "flash_wgmma", "flash_wgmma_split")
ROWS = ("row_registers", "row_twice", "row_cluster")
SHAPES = {
    "attention": "1,8,512,64",
    "row_registers": "64,2048",
    "row_twice": "64,2048",
    "row_cluster": "64,4096",
}
"""The shape that a template is tried at, or any of a task. Of row_registers four warps then share a row, of
row_twice a CTA has two rows, of row_cluster two CTAs share one."""
KEPT = ("kind", "line", "before", "after", "place", "text", "differs", "compared", "finalists")
"""What is kept of a survivor."""
Key = tuple[str, int, str]


@dataclass
class Row:
    """The mutants of one kernel, and what became of those that have been tried."""

    target: MutationTarget
    file: Path
    about: dict[str, Any]
    chosen: list[Mutant]
    tried: dict[Key, MutantResult]

    def left(self) -> list[Attempt]:
        """Mutants that have not been tried."""
        return [Attempt(self.target, "look", m) for m in self.chosen if m.key not in self.tried]

    def uncompared(self) -> list[Attempt]:
        """Survivors that have not been compared with the original."""
        survivors = [(m, t) for m, t in self._survivors() if not t.compared]
        return [Attempt(self.target, "compare", m, t) for m, t in survivors]

    def unjudged(self, seeds: Iterable[int], wrong: bool) -> list[Attempt]:
        """Survivors with the seeds that they have not met: those that are `wrong` so far, or the others."""
        return [
            Attempt(self.target, "judge", m, t, seed)
            for seed in seeds
            for m, t in self._survivors()
            if t.compared and str(seed) not in t.finalists and wrong == (not _equal(t, self.target))
        ]

    def _survivors(self) -> list[tuple[Mutant, MutantResult]]:
        looked = [(m, self.tried.get(m.key)) for m in self.chosen]
        return [(m, t) for m, t in looked if t and t.fate == "survived"]

    def add(self, found: MutantResult) -> None:
        """Keeps it, also in the file, where the last one counts."""
        if known := self.tried.get(found.key):
            for seed, verdict in known.finalists.items():
                found = found.with_verdict(int(seed), verdict)
        self.tried[found.key] = found
        with self.file.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")

    def result(self) -> dict[str, Any]:
        chosen = {m.key for m in self.chosen}
        found = record(self.target, in_order(t for at, t in self.tried.items() if at in chosen))
        return {**self.about, "left": len(self.left()), **summed(dict(found))}


def _equal(tried: MutantResult, target: MutationTarget) -> bool:
    return judged({**asdict(tried), "template": target.template}) is not None


def row_of(target: MutationTarget, count: int | None, commit: str, folder: Path) -> Row:
    """What is to be tried of a kernel, and what has been, as far as kernel and checks are the same."""
    task, problem = target.problem.task, target.problem
    causal = "-causal" if problem.flags.get("causal") else ""
    file = folder / f"{task}-{target.template}{causal}.jsonl"
    run = MutationRun(target)
    about = {
        "commit": commit,
        "problem": problem.key,
        "ptx": hashlib.sha256(run.binary.ptx.encode()).hexdigest(),
        "checks": checks_digest(task),
    }
    lines = [json.loads(line) for line in whole_lines(file)]
    if not lines or any(lines[0].get(name) != about[name] for name in ("problem", "ptx", "checks")):
        lines = [about]
        file.write_text(json.dumps(about) + "\n")
    tried = [MutantResult(**line) for line in lines[1:]]
    return Row(target, file, lines[0], run.some(count), {t.key: t for t in tried})


def checks_digest(task: str) -> str:
    """What verdicts depend on besides the kernel."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in checking(task))).hexdigest()


def checking(task: str) -> list[Path]:
    """The sources of the gate, the emulator, the task and what tasks share."""
    package = Path(evo.__file__).parent
    folders = [package / name for name in ("gate", "device", "task")]
    folders += [ROOT / "templates" / name for name in (task, "include")]
    every = (path for folder in folders for path in sorted(folder.rglob("*")))
    return [path for path in every if path.suffix in (".py", ".cpp", ".hpp") and "cheats" not in path.parts]


def whole_lines(file: Path) -> list[str]:
    """Those of a file that may have been left in the middle of one; none where there is no file."""
    text = file.read_text() if file.exists() else ""
    return [line for line in text.splitlines() if line.endswith("}")]


def targets(task: Task, names: Iterable[str], shape: str | None, cache: Path) -> list[MutationTarget]:
    return [
        MutationTarget(name, problem, gpu_that_runs(load_template(task, name).needs), cache)
        for name in names
        for problem in problems(task, shape or SHAPES.get(name) or SHAPES.get(task.name))
    ]


def problems(task: Task, shape: str | None) -> list[Problem]:
    """Those of a shape, causal and not where the task has both; the task's example without a shape."""
    if shape is None:
        return [task.example]
    if "causal" not in task.flags:
        return [task.problem(shape)]
    return [task.problem(shape, causal=causal) for causal in (False, True)]


def options(parser: argparse.ArgumentParser) -> None:
    names = f"{', '.join(FAST)}; {', '.join(ROWS)}"
    parser.add_argument("--task", action="append", help="may be repeated (default: attention)")
    parser.add_argument("--template", action="append", help=f"of each task, likewise (default: {names})")
    parser.add_argument("--shape", help="of all kernels (default: by task and template)")
    parser.add_argument("--mutants", type=int, help="of each kernel (default: all)")
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--seeds", type=int, default=12, help="of the check for finalists")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing later than that")
    parser.add_argument("--state", type=Path, default=Path("build/mutation"), help="what has been tried")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.monotonic()
    asked.state.mkdir(parents=True, exist_ok=True)
    commit, _ = commit_and_clean(ROOT)
    chosen = [
        target
        for task in map(load_task, asked.task or ("attention",))
        for target in targets(task, asked.template or templates(task), asked.shape, default_folder())
    ]
    rows = [row_of(target, asked.mutants, commit, asked.state) for target in chosen]
    of = {repr(row.target): row for row in rows}
    with Workers(asked.workers) as workers:
        for number, work in enumerate(steps(rows, asked.seeds)):
            took = time.monotonic() - begin
            print(f"{took:.0f} s: step {number}, {len(work)} to do", file=sys.stderr, flush=True)
            for attempt, tried in workers.each(work, begin + asked.seconds):
                if tried:
                    of[repr(attempt.target)].add(tried)
            yield {"kernels": [row.result() for row in rows]}
    results = [row.result() for row in rows]
    print(table(results), file=sys.stderr)
    yield {"kernels": results}


def templates(task: Task) -> tuple[str, ...]:
    """What is tried of a task by default."""
    return FAST if task.name == "attention" else ROWS


def steps(rows: Sequence[Row], seeds: int) -> Iterator[list[Attempt]]:
    """What is to be done, step by step; each follows from what the steps before found."""
    fresh = [Attempt(row.target, "verify") for row in rows if row.left()]
    yield fresh + [attempt for row in rows for attempt in row.left()]
    yield [attempt for row in rows for attempt in row.uncompared()]
    for wrong in (True, False):
        for seed in range(seeds):
            attempts = [attempt for row in rows for attempt in row.unjudged([seed], wrong)]
            yield sorted(attempts, key=lambda attempt: not (attempt.tried and attempt.tried.differs))


def summed(found: dict[str, Any]) -> dict[str, Any]:
    """A record whose survivors have their argument, and what is then to be counted. `wrong`: survivors that
    no argument covers; `wrong_finalists`: those of them that the check for finalists let through at any seed
    that was tried."""
    wrong, late = 0, 0
    kinds: Counter[str] = Counter()
    survivors = []
    for s in found["survivors"]:
        verdict = judged({**s, "template": found["template"]})
        wrong += verdict is None
        late += verdict is None and Outcome.GREEN in s["finalists"].values()
        kinds[verdict[0] if verdict else "wrong"] += 1
        why = {"equal": verdict[0], "why": verdict[1]} if verdict else {"equal": None}
        survivors.append({**why, **{k: s[k] for k in KEPT}})
    found["survivors"] = survivors
    counted = found["refused"] + wrong
    return {
        **found,
        "wrong": wrong,
        "wrong_finalists": late,
        "equal_by": dict(kinds),
        "score_of_not_equal": found["refused"] / counted if counted else 1.0,
    }


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """What the check for candidates refused, as Markdown: of all mutants that ran and differ as programs, of
    those that are not equal by argument; and what the check for finalists let through of these."""
    head = "| kernel | executed | refused | equal | wrong | refused of not equal | wrong for finalists |"
    lines = [head, "|---" * 7 + "|"]
    for r in results:
        causal = ", causal" if "causal=1" in r["problem"] else ""
        name = f"{r['problem'].split()[0]} {r['template']}{causal}"
        equal = r["executed"] - r["refused"] - r["wrong"]
        cells = [name, r["executed"], r["refused"], equal, r["wrong"], f"{r['score_of_not_equal']:.1%}"]
        lines.append("| " + " | ".join(map(str, [*cells, r["wrong_finalists"]])) + " |")
    return "\n".join(lines)
