"""Mutation testing of the gate over every template: what it refuses of the mutants of correct kernels.

Each template's default kernel at the mission's shape, causal and not, on the emulator; it stands for an L4,
or for an H200 where the template needs one. All mutants of executed statements are tried, or a sample of
`--mutants` that has every kind. What has been tried is kept in the folder `--state`, so that a run that was
ended goes on. A kernel whose PTX has changed begins anew. With `--again` survivors are tried once more first,
because a check was added; a mutant that still survives keeps its class. Written: the scores, and each
survivor with its line and its class:

    bit-identical     no bit of any output differs on inputs of the strictest gate, that for finalists
    within the line   bits differ there, no more than the roundings of honest kernels do
    only finalists    GREEN for a candidate, refused for a finalist

and for each why it is no other kernel, or which hole let it pass (`mutation_names.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gate.mutation_names import name_of
from benchmarks.record import ROOT, commit_and_clean
from evo.device.open import gpu_that_runs
from evo.selftest.mutant_results import MutantResult, MutationTarget, in_order, record
from evo.selftest.mutants import Attempt, MutationRun, try_each
from evo.selftest.mutation import Mutant
from evo.task import load_task
from evo.template import list_templates, load_template
from evo.trial import Outcome

PROTOCOL = """PTX mutants of each template's default kernel through the gate, seed 0, on the emulator; each
row names the commit of the sources that it is of"""
GPU = False
KEPT = ("kind", "line", "before", "after", "place", "text", "thorough", "differs", "compared")
"""What is kept of a survivor."""


@dataclass
class Row:
    """The mutants of one kernel, and what became of those that have been tried."""

    target: MutationTarget
    file: Path
    about: dict[str, Any]
    chosen: list[Mutant]
    tried: dict[tuple[str, int, str], MutantResult]

    @property
    def left(self) -> list[Attempt]:
        return [(self.target, m, None) for m in self.chosen if m.key not in self.tried]

    @property
    def unknown(self) -> list[Attempt]:
        """Survivors that have not been looked at again."""
        looked = [(m, self.tried.get(m.key)) for m in self.chosen]
        return [(self.target, m, tried) for m, tried in looked if tried and tried.unknown]

    @property
    def survivors(self) -> list[Attempt]:
        """Survivors that have been looked at again, to be tried anew."""
        looked = [(m, self.tried.get(m.key)) for m in self.chosen]
        return [(self.target, m, None) for m, tried in looked if tried and tried.compared]

    def add(self, tried: MutantResult) -> None:
        """Keeps it, also in the file, where the last one counts."""
        known = self.tried.get(tried.key)
        if known and known.compared and tried.unknown:
            return  # survives again: what it was compared to be holds
        self.tried[tried.key] = tried
        with self.file.open("a") as file:
            file.write(json.dumps(asdict(tried)) + "\n")

    def result(self) -> dict[str, Any]:
        chosen = {m.key for m in self.chosen}
        found = dict(record(self.target, in_order(t for at, t in self.tried.items() if at in chosen)))
        return {**self.about, "left": len(self.left), "unknown": len(self.unknown), **named(found)}


def row_of(target: MutationTarget, count: int | None, commit: str, folder: Path) -> Row:
    """What is to be tried of a kernel, and what has been, as far as it was the same kernel."""
    name = f"{target.template}{'-causal' if target.problem['causal'] else ''}"
    file = folder / f"{name}.jsonl"
    run = MutationRun(target)
    ptx = hashlib.sha256(run.binary.ptx.encode()).hexdigest()
    lines = [json.loads(line) for line in whole_lines(file)]
    if not lines or lines[0]["ptx"] != ptx:
        run.verify()
        lines = [{"commit": commit, "ptx": ptx}]
        file.write_text(json.dumps(lines[0]) + "\n")
    tried = [MutantResult(**line) for line in lines[1:]]
    return Row(target, file, lines[0], run.some(count), {t.key: t for t in tried})


def whole_lines(file: Path) -> list[str]:
    """Those of a file that may have been left in the middle of one; none where there is no file."""
    text = file.read_text() if file.exists() else ""
    return [line for line in text.splitlines() if line.endswith("}")]


def targets(names: Iterable[str], cache: Path) -> list[MutationTarget]:
    task = load_task("attention")
    return [
        MutationTarget(
            name,
            task.problem("1,8,512,64", causal=causal),
            gpu_that_runs(load_template(task, name).needs),
            cache,
        )
        for name in names
        for causal in (False, True)
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mutants", type=int, help="of each kernel (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--template", action="append", help="only this one; may be repeated")
    parser.add_argument("--again", action="store_true", help="try survivors anew first")
    parser.add_argument("--state", type=Path, default=Path("build/mutation"), help="what has been tried")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    begin = time.perf_counter()
    asked.state.mkdir(parents=True, exist_ok=True)
    commit, _ = commit_and_clean(ROOT)
    names = asked.template or list_templates("attention")
    chosen = targets(names, asked.state / "cache")
    rows = [row_of(target, asked.mutants, commit, asked.state) for target in chosen]
    of = {row.target: row for row in rows}
    if asked.again:
        for row in rows:
            row.about["survivors_tried_again"] = commit
    looks = (*(["survivors"] if asked.again else []), "left", "unknown")
    for look in looks:  # survivors, which take longest to compare, last
        work: list[Attempt] = [attempt for row in rows for attempt in getattr(row, look)]
        print(f"{len(work)} to look at", file=sys.stderr, flush=True)
        for number, (target, tried) in enumerate(try_each(work, asked.jobs), 1):
            of[target].add(tried)
            if number % 50 == 0:
                took = time.perf_counter() - begin
                print(f"{number} looked at, {took:.0f} s", file=sys.stderr, flush=True)
    results = [row.result() for row in rows]
    print(table(results), file=sys.stderr)
    yield {"kernels": results}


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The scores of the candidates' gate as Markdown: of all mutants that ran and differ as programs, of
    those that are not bit-identical, of those that are not equivalent by argument."""
    head = "| template | executed | refused | bit-identical | refused of others | holes | not equivalent |"
    lines = [head, "|---" * 7 + "|"]
    for r in results:
        name = r["template"] + (", causal" if "causal=1" in r["problem"] else "")
        cells = [name, r["executed"], f"{r['score']:.1%}", r["alike"], f"{r['score_of_different']:.1%}"]
        cells += [r["holes"], f"{r['score_of_not_equivalent']:.1%}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def named(found: dict[str, Any]) -> dict[str, Any]:
    """A record whose survivors have their class and their name, and what is then to be counted: `holes`, and
    the share refused of those that are not equivalent by argument."""
    names = [name_of(s) for s in found["survivors"]]
    holes = sum(hole for _, hole in names)
    found["survivors"] = [
        {"class": class_of(s), "name": name, "hole": hole, **{k: s[k] for k in KEPT}}
        for s, (name, hole) in zip(found["survivors"], names, strict=True)
    ]
    counted = found["refused"] + holes
    score = found["refused"] / counted if counted else 1.0
    return {**found, "holes": holes, "score_of_not_equivalent": score}


def class_of(survivor: Mapping[str, Any]) -> str:
    """What kind of survivor this is; see above."""
    if not survivor["compared"]:
        return "not looked at again"
    if survivor["thorough"] != Outcome.GREEN:
        return "only finalists"
    return "within the line" if survivor["differs"] else "bit-identical"
