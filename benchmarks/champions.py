"""Points that are known to be good -> studies, CONFIRMED trials, champions.

    python benchmarks/champions.py try --points points.json --database d.db    a study a row, a trial a point
    python benchmarks/champions.py confirm --database d.db --kernels kernels   in a fresh process

`--points` is what benchmarks/attention_rows.py takes, of which `--rows` names some. `confirm` goes through
the studies in the order of the file until `--seconds` are over; what it did not reach stays unconfirmed.
Finalists pass compute-sanitizer only with `--sanitize`, as that takes 16 s each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from evo import __version__
from evo.confirm import SANITIZE_S, confirm, never
from evo.confirm.champions import promote
from evo.errors import EvoError
from evo.evaluate import EvaluatorSpec
from evo.gpu import target
from evo.rig import arch_of, evaluator_of, referee_of
from evo.store import Store, Study
from evo.task import load_task
from evo.template import load_template
from evo.trial import Point, Problem

TASK = load_task("attention")


def study_of(row: str, templates: tuple[str, ...]) -> Study:
    """The study of a row of the table: "1,8,512,64 causal sm_89"."""
    shape, *rest = row.split()
    named = [word for word in rest if word != "causal"]
    problem = TASK.problem(shape, causal="causal" in rest)
    name = "-".join(["champion", shape.replace(",", "x"), *rest])
    return Study(
        name, problem, "cuda:0", "H200", templates, 3600.0, strategy="random", workers=1,
        target=named[0] if named else "", versions={"evo": __version__},
    )  # fmt: skip


def points_of(row: str, given: dict[str, Any]) -> list[tuple[str, Point]]:
    """(template, whole point), each once."""
    found: list[tuple[str, Point]] = []
    for _, stem, changes in given[row]:
        point = load_template(TASK, stem).space.parse({**load_template(TASK, stem).space.default, **changes})
        if (stem, point) not in found:
            found.append((stem, point))
    return found


def try_points(given: dict[str, Any], database: str, cache: Path, most: int) -> None:
    asked = {row: points_of(row, given)[:most] for row in given}
    with Store(database, create=True) as store:
        first: EvaluatorSpec | None = None
        for row, points in asked.items():
            study = study_of(row, tuple(dict.fromkeys(stem for stem, _ in points)))
            spec = evaluator_of(study, cache, None)
            if first is None:
                first = spec
                build([(study_of(r, ()).problem, p) for r, p in asked.items()], spec)
            begin, study = time.perf_counter(), store.create(study)
            evaluator = spec.build()
            told = []
            for number, (stem, point) in enumerate(points):
                trial = evaluator.evaluate(load_template(TASK, stem).candidate(point, study.problem))
                store.add(study, number, trial)
                told.append(f"{trial.score_us:.2f}" if trial.score_us else f"{trial.outcome} {trial.reason}")
            evaluator.close()
            print(f"{row}: {', '.join(told)} us ({time.perf_counter() - begin:.1f} s)", flush=True)


def build(rows: list[tuple[Problem, list[tuple[str, Point]]]], spec: EvaluatorSpec) -> None:
    """Compiles everything on all cores, into the cache."""
    compiler, requests = spec.compiler(), []
    for problem, points in rows:
        for stem, point in points:
            candidate = load_template(TASK, stem).candidate(point, problem)
            requests.append((candidate.source, candidate.entry, target("sm_90a").arch))
    compiler.compile_many(requests, os.cpu_count() or 1)
    compiler.close()


def confirm_all(
    database: str, kernels: Path, cache: Path, seconds: float, sanitize: bool, patient: bool
) -> None:
    begin = time.monotonic()
    with Store(database) as store:
        for study in store.studies():
            left = seconds - (time.monotonic() - begin)
            if left < 8:
                print(f"{study.name}: not reached", flush=True)
                continue
            try:
                with closing(referee_of(study, cache, None, patient).build()) as judges:
                    over = never if sanitize else lambda needs_s: needs_s >= SANITIZE_S
                    found = confirm(study, store, judges, top=1, over=over)
                best = next((f for f in found.green if "warm" in f.standings), None) if found else None
                if best is None:
                    print(f"{study.name}: nobody is CONFIRMED", flush=True)
                    continue
                arch = study.target or arch_of(study)
                kept = promote(store.trial(best.name), study, found, arch, kernels)
            except EvoError as error:
                print(f"{study.name}: {error.message}", flush=True)
                continue
            warm = best.standings["warm"]
            low = warm.speedup_interval.low if warm.speedup_interval else 0.0
            told = f"{kept.name}: {warm.median_us:.2f} us, {warm.speedup:.3f}x {warm.versus}, > {low:.3f}"
            print(f"{told} ({time.monotonic() - begin:.0f} s)", flush=True)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("step", choices=("try", "confirm"))
    parser.add_argument("--points", type=Path, default=Path("points.json"))
    parser.add_argument("--rows", default="", help="rows whose name with a dot contains this; several with |")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--patient", action="store_true", help="beside FlexAttention and Triton, too")
    parser.add_argument("--most", type=int, default=3, help="points a row")
    parser.add_argument("--database", default="champions.db")
    parser.add_argument("--kernels", type=Path, default=Path("kernels"))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "evo")
    parser.add_argument("--seconds", type=float, default=600.0)
    args = parser.parse_args()
    if args.step == "try":
        given = json.loads(args.points.read_text())
        asked = {row: given[row] for row in given if any(a in f"{row}." for a in args.rows.split("|"))}
        try_points(asked, args.database, args.cache, args.most)
    else:
        confirm_all(args.database, args.kernels, args.cache, args.seconds, args.sanitize, args.patient)


if __name__ == "__main__":
    main()
