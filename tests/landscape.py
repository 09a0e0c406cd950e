"""A search without compiler or GPU: a real template, and workers whose results are functions of the point.

Run as a program (DATABASE STUDY BUDGET WORKERS SECONDS [pool]), it searches a study and prints the number of
each trial when it is recorded.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from times import timing

from evo.errors import EvoError
from evo.evaluate.pool import Pool
from evo.gpu import Limits, target
from evo.loop import Progress, SearchSpace, search, search_spaces
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import Template, load_template
from evo.trial import Candidate, Interval, Outcome, Problem, Resources, Trial, digest_of

TASK = load_task("attention")
PROBLEM: Problem = TASK.example
LIMITS = Limits.of(target("sm_89"))

SOURCE = """\
constexpr int kRows = {{ rows }}, kColumns = {{ columns }}, kStages = {{ stages }};
constexpr bool kWide = {{ wide }};
constexpr int kHint = {{ hint }};  // changes the source, but no machine code
extern "C" __global__ void landscape(const void* q, void* o) {}
"""

SPACE = """\
from evo.space import Parameter, Space, rule
from evo.trial import BufferArg, LaunchConfig

@rule("rows times columns above 8192")
def area(p, limits, problem):
    return p.rows * p.columns <= 8192

SPACE = Space(
    (
        Parameter("rows", (16, 32, 64, 128), 64),
        Parameter("columns", (16, 32, 64, 128), 32),
        Parameter("stages", (1, 2, 3), 2),
        Parameter("wide", (False, True), False),
        Parameter("hint", (0, 1), 0),
        Parameter("ghost", (0, 1), 0),
    ),
    (area,),
)
NEEDS = "sm_80"
ENTRY = "landscape"

def smem_bytes(p, problem):
    return p.rows * p.columns

def threads(p, problem):
    return p.rows

def derived(p, problem):
    return {}

def launch(p, problem, gpu):
    return LaunchConfig((1, 1, 1), (p.rows, 1, 1), p.rows * p.columns, (BufferArg("q"), BufferArg("o")))
"""
"""`hint` is dead: the machine code does not change. `ghost` is deader: not even the source does."""

TILES = """
def grid(p, problem):
    return -(-problem["L"] // p.rows), problem["B"] * problem["H"], 1
"""
"""For the end of SPACE: a CTA computes so many rows."""


def write_template(
    folder: Path, name: str = "landscape", space: str = SPACE, source: str = SOURCE
) -> Template:
    where = folder / "attention"
    where.mkdir(parents=True, exist_ok=True)
    (where / f"{name}.cu.jinja").write_text(source)
    (where / f"{name}.py").write_text(space)
    return load_template(TASK, name, (folder,))


def spaces_of(folder: Path) -> dict[str, SearchSpace]:
    return search_spaces([write_template(folder)], LIMITS, PROBLEM)


def evaluate(candidate: Candidate) -> Trial:
    """What a compiler, a gate and a clock would say of a point of `landscape`: always the same."""
    p = candidate.point
    rows, columns, stages = int(p["rows"]), int(p["columns"]), int(p["stages"])
    if rows == 16 and stages == 1:
        return Trial(
            candidate, Outcome.UNCOMPILABLE, "too much of it", "landscape.cu(1): error: no", device="none"
        )
    code = digest_of({k: v for k, v in p.items() if k not in ("hint", "ghost")})
    built = {"machine_code": code, "compiler": "none 1", "resources": Resources(rows, 0, 0, 0)}
    if columns == 16 and p["wide"]:
        return Trial(candidate, Outcome.RED, "row error", device="none", **built)  # type: ignore[arg-type]
    us = 5 + abs(math.log2(rows / 128)) + abs(math.log2(columns / 64)) + abs(stages - 3) + (not p["wide"])
    near, ratio = Interval(us - 0.01, us + 0.01), Interval(7 / us, 8 / us)
    timed = timing((us,) * 20, us, near, {"sdpa": 7.5}, 7.5 / us, ratio)
    built |= {"timing": timed, "versions": {"x": "1"}}
    return Trial(candidate, Outcome.TIMED, device="none", **built)  # type: ignore[arg-type]


BEST_US = 5.0
FATAL = ("rows", "columns", "stages", "wide")
SIZE = 15 * 3 * 2 * 2 * 2  # feasible points


def evaluate_again(candidate: Candidate, earlier: int) -> Trial:
    """Another evaluation: a fiftieth slower than the first one, faster with 64 columns; with 128 rows and
    64 columns the third one is RED."""
    trial = evaluate(candidate)
    assert trial.timing
    if earlier == 2 and (candidate.point["rows"], candidate.point["columns"]) == (128, 64):
        return replace(trial, outcome=Outcome.RED, reason="race", detail="two threads", timing=None)
    us = trial.timing.median_us * (0.98 if candidate.point["columns"] == 64 else 1.02)
    known = trial.timing.times["normal"]
    again = timing(
        (us,) * 20, us, Interval(us, us), known.baselines_us, known.speedup, known.speedup_interval
    )
    return replace(trial, timing=again)


def slower(trial: Trial, factor: float, earlier: int) -> Trial:
    """What another GPU would say: everything takes `factor` times as long, and a bit more each time."""
    if trial.timing is None or factor == 1.0:
        return trial
    known = trial.timing.times["normal"]
    us = known.median_us * factor * (1 + earlier / 1e4)
    beside = {name: factor * one for name, one in known.baselines_us.items()}
    near = Interval(us - 0.01, us + 0.01)
    again = timing((us,) * 20, us, near, beside, known.speedup, known.speedup_interval)
    return replace(trial, timing=again)


class LandscapeWorkers:
    """`count` workers in this process, each of which takes `seconds` a candidate; more are queued. `waits`:
    a worker without a candidate says that it is idle."""

    def __init__(self, count: int = 1, seconds: float = 0.0, queued: int = 2, waits: bool = False) -> None:
        self.capacity = count + queued
        self.submitted: list[Candidate] = []
        self.remeasured: list[tuple[int, int]] = []
        self.closed = False
        self._waits = waits
        self._seconds = seconds
        self._free = [0.0] * count
        self._waiting: list[tuple[float, int, Candidate, int]] = []

    @property
    def idle(self) -> int:
        return max(0, len(self._free) - len(self._waiting)) if self._waits else 0

    def submit(self, number: int, candidate: Candidate) -> None:
        self.submitted.append(candidate)
        self._begin(number, candidate)

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        assert self.idle
        self.remeasured.append((number, earlier))
        self._begin(number, candidate, earlier)

    def _begin(self, number: int, candidate: Candidate, earlier: int = 0) -> None:
        worker = self._free.index(min(self._free))
        # a duration that depends on the number: results of several workers come out of order
        self._free[worker] = max(self._free[worker], time.monotonic()) + self._seconds * (1 + number % 3)
        self._waiting.append((self._free[worker], number, candidate, earlier))

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        self._waiting.sort(key=lambda entry: entry[:2])
        if self._waiting:
            time.sleep(min(timeout, max(0.0, self._waiting[0][0] - time.monotonic())))
        ended = [entry for entry in self._waiting if entry[0] <= time.monotonic()]
        self._waiting = self._waiting[len(ended) :]
        return [
            (number, evaluate_again(candidate, earlier) if earlier else evaluate(candidate))
            for _, number, candidate, earlier in ended
        ]

    def withdraw(self, numbers: Collection[int]) -> set[int]:
        """Those for which there is no worker yet."""
        now = time.monotonic()
        begun = [one for one in self._waiting if one[0] - self._seconds * (1 + one[1] % 3) <= now]
        given_up = {one[1] for one in self._waiting if one[1] in numbers and one not in begun}
        self._waiting = [one for one in self._waiting if one[1] not in given_up]
        ends = sorted((one[0] for one in begun), reverse=True)
        self._free = [*ends, *[now] * len(self._free)][: len(self._free)]
        return given_up

    def activity(self) -> list[str]:
        return [f"trial {number}" for _, number, *_ in self._waiting]

    def __enter__(self) -> LandscapeWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class LandscapeSpec:
    """What a real pool's processes do: the landscape, but for points with `fatal`, which end the process."""

    seconds: float = 0.0
    fatal: tuple[int, int, int, bool] = (-1, -1, -1, False)
    """The values of `FATAL` of the points over which an evaluator dies."""
    slower: float = 1.0
    """By what factor all takes longer on this GPU."""
    meeting: Path | None = None
    """A folder in which two evaluators are there before either evaluates: one may start much later."""
    forks: bool = False

    def prepare(self) -> None: ...

    def evaluators(self, workers: int) -> int:
        return workers

    def precompiler(self, _workers: int) -> None:
        return None

    def build(self) -> LandscapeEvaluator:
        return LandscapeEvaluator(self)


class LandscapeEvaluator:
    usable = True

    def __init__(self, spec: LandscapeSpec) -> None:
        self._spec = spec
        if spec.meeting:
            (spec.meeting / str(os.getpid())).touch()

    def evaluate(
        self,
        candidate: Candidate,
        watch: Callable[[str], None],
        earlier: int,
        best_us: float | None,  # noqa: ARG002
        compares: bool,  # noqa: ARG002
    ) -> Trial:
        watch("gate")
        while self._spec.meeting and len(list(self._spec.meeting.iterdir())) < 2:
            time.sleep(0.01)
        time.sleep(self._spec.seconds)
        if tuple(candidate.point[name] for name in FATAL) == self._spec.fatal:
            os.kill(os.getpid(), signal.SIGSEGV)
        return slower(evaluate(candidate), self._spec.slower, earlier)

    def meanwhile(self) -> bool:
        return False


def new_study(
    name: str = "land-1", budget_s: float = 600.0, workers: int = 1, seed: int = 0, strategy: str = "evo"
) -> Study:
    return Study(name, PROBLEM, "none", "L4", ("landscape",), budget_s, strategy, seed, workers=workers)


def enough(trials: int) -> Callable[[Progress], None]:
    """Ends a search as Ctrl-C does once so many trials are known: a budget of seconds would give a slow
    machine fewer of them."""

    sent: list[int] = []  # a second signal would end the process

    def watch(progress: Progress) -> None:
        if progress.latest and progress.trials >= trials and not sent:
            sent.append(progress.trials)
            signal.raise_signal(signal.SIGINT)

    return watch


def sequence(store: Store, study: Study) -> list[tuple[int, str, tuple[Any, ...], str]]:
    return [(r.number, r.template, tuple(r.point.items()), r.outcome) for r in store.rows(study)]


def main(words: list[str]) -> int:
    database, name, budget, workers, seconds, *pool = words
    folder = Path(database).parent / "templates"
    count = int(workers)

    def show(progress: Progress) -> None:
        if progress.latest:
            print(progress.latest.number, flush=True)

    with Store(database) as store:
        if name not in {study.name for study in store.studies()}:
            store.create(new_study(name, float(budget), count, seed=5))
        crew = Pool(LandscapeSpec(float(seconds)), count) if pool else LandscapeWorkers(count, float(seconds))
        result = search(store.study(name), store, spaces_of(folder), crew, show)
    print(result.stopped, flush=True)
    return 0


if __name__ == "__main__":
    from landscape import main as imported  # so that a pool's processes find what they are sent

    try:
        sys.exit(imported(sys.argv[1:]))
    except EvoError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
