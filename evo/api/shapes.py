"""One search for many problems, from what a person asks for to its portfolio."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.keywords import keywords_of
from evo.api.parse import (
    DATABASE,
    Flags,
    Paths,
    Shape,
    parse_budget,
    parse_problems,
    shape_text,
    task_folders,
)
from evo.api.running import created, open_store, pool_of
from evo.api.search import asked_for, chosen, several
from evo.api.study_set import StudySet, portfolio_of, records_of
from evo.cache import default_folder
from evo.device.open import is_gpu, memory_of
from evo.errors import MachineError, NothingFound, UsageError
from evo.report import duration
from evo.report.screen import Screen, screen
from evo.study import Setup, Study
from evo.task import Task, load_task

if TYPE_CHECKING:
    from evo.loop import SearchSpace
    from evo.loop.member import Member
    from evo.loop.turns import Turns
    from evo.store import Store
    from evo.trial import Problem

MOST_PROBLEMS = 1000
MOST_NAMED = 12
INTERRUPTED = 130
"""What a command ends with that a person interrupted."""
HELD_BYTES = 2 << 30
"""What a process that evaluates is allowed of a GPU's memory, besides what a problem takes."""


@keywords_of("evo.search_shapes")
def search_shapes(
    task: str,
    *,
    shapes: Sequence[Shape],
    budget: str | float,
    portfolio: int | None = None,
    rate: float | None = None,
    study: str | None = None,
    flag: Flags | None = None,
    dtype: str | None = None,
    template: str | Sequence[str] | None = None,
    templates: Paths | None = None,
    strategy: str = "evo",
    seed: int = 0,
    warm_start: str | Sequence[str] | None = None,
    until: str | int = "budget",
    rank: str = "worst",
    accept_unproven: bool = False,
    workers: int | None = None,
    device: str = "auto",
    gpu: str | None = None,
    gpus: str | None = None,
    target: str | None = None,
    smem_limit: str | int | None = None,
    database: str | os.PathLike[str] = DATABASE,
    cache: str | os.PathLike[str] | None = None,
    nvcc: str | os.PathLike[str] | None = None,
    progress: bool = True,
    own: str | None = None,
) -> StudySet:
    """Searches all problems of `shapes` for one budget, a study each, and chooses at most `portfolio` kernels
    (8; of a set that goes on as many as before) that serve them all with the least loss; the set of these
    studies.

    `task`: its name. `shapes`: from 2 to MOST_PROBLEMS problems: sizes as `shape` of `evo.search` takes them,
    names of a task's sets, or files with such a text on each line. `study`: the name that the studies begin
    with; those that are there go on. `gpus`: each searches a part of the problems, in a process of its own.
    `own`: numbers of problems ("1,3"), where other searches have the rest. All other names are as in
    `evo.search`, and so is Ctrl-C.

    UsageError for what cannot be, MachineError for what this machine lacks, NothingFound where no problem has
    a correct kernel."""
    told = dict(locals())
    loaded = load_task(task, folders := task_folders(templates))
    told["shapes"] = texts_of(loaded, shapes)
    problems = _checked(_parsed(loaded, told["shapes"], dtype, flag or ()))
    first = asked_for(
        loaded,
        problems[0],
        folders,
        parse_budget(budget, rate),
        where=(device, gpu, gpus, target, None),
        chosen=chosen(strategy, seed, workers, smem_limit, rate, until),
        template=template,
        rank=rank,
        accept_unproven=accept_unproven,
    )
    tools = Path(cache) if cache else default_folder(), Path(nvcc) if nvcc else None
    asked = [replace(first, name=study or "", problem=problem) for problem in problems]
    return (_on_each_gpu if len(first.gpus) > 1 else _searched)(loaded, asked, told, tools)


def _parsed(task: Task, shapes: Sequence[str], dtype: str | None, flags: Flags) -> list[Problem]:
    """The problems of shapes and named sets. UsageError, which says of a malformed one how several are
    given."""
    try:
        return parse_problems(task, shapes, dtype, flags)
    except UsageError as error:
        if not error.message.startswith("malformed shape"):
            raise
        how = "--shapes takes one shape and may be repeated, or names a file with a shape on each line"
        raise UsageError(error.message, f"{how}; {error.hint}") from error


def _checked(problems: list[Problem]) -> list[Problem]:
    """Problems of which there are neither too few nor too many."""
    if not 1 < len(problems) <= MOST_PROBLEMS:
        raise UsageError(
            f"--shapes names {len(problems)} problems", f"from 2 to {MOST_PROBLEMS}; else --shape"
        )
    return problems


def _on_each_gpu(
    task: Task, asked: Sequence[Study], told: Mapping[str, Any], tools: tuple[Path, Path | None]
) -> StudySet:
    """The set of the studies that are `asked` for, after a search on each of their GPUs. A study that is
    there stays on its GPU; the others are dealt out in turn. `told`: the arguments of `search_shapes`."""
    from evo.api.models import Part, search_parts

    first, database, show = asked[0], os.fspath(told["database"]), screen(told["progress"])
    if first.workers < len(first.gpus):
        message = f"{len(first.gpus)} GPUs need as many workers, and there are {first.workers}"
        raise UsageError(message, "more --workers, or fewer --gpus")
    with open_store(database, show, create=True) as store:
        name = first.name or _unused(store, f"{task.name}-shapes")
        there = {one.name: one.devices[0] for one in store.studies()}
    numbers: dict[str, list[int]] = {gpu: [] for gpu in first.gpus}
    for number in range(1, len(asked) + 1):
        usual = first.gpus[number % len(first.gpus)]
        gpu = there.get(f"{name}-{number}", usual)
        numbers[gpu if gpu in numbers else usual].append(number)
    each = first.workers // len(first.gpus)
    parts = [
        Part(gpu, name, {"gpus": gpu.partition(":")[2], "own": ",".join(map(str, some)), "workers": each})
        for gpu, some in numbers.items()
        if some
    ]
    codes = search_parts(parts, task.name, _options(first.budget_s, told))
    found = StudySet(name, database, told["portfolio"], *tools)
    for part, code in zip(parts, codes, strict=True):
        if code not in (0, INTERRUPTED, NothingFound.exit_code):
            hint = f"what was found stays; the same command with --study {name} goes on"
            raise MachineError(f"the search on {part.gpu} ended with {code}", hint)
    result, begun = found._found(), {one.name for one in found.studies}
    never = [one.problem.key for n, one in enumerate(asked, 1) if f"{name}-{n}" not in begun]
    if NothingFound.exit_code in codes and not any(member.times for member in result.members):
        raise NothingFound(f"none of {len(asked)} problems has a correct kernel", "evo studies")
    unserved = [*result.unserved, *never]
    found.result = replace(result, unserved=unserved, interrupted=INTERRUPTED in codes)
    return found


def _options(budget_s: float, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the searches of the parts are told, as `evo search` takes it."""
    left_out = ("task", "study", "gpus", "own", "workers", "progress")
    options = {name: value for name, value in told.items() if name not in left_out}
    options["budget"] = f"{budget_s:f}s"
    if isinstance(flags := told["flag"], Mapping):
        options["flag"] = [f"{name}={int(v) if isinstance(v, bool) else v}" for name, v in flags.items()]
    options["templates"] = task_folders(told["templates"])
    options |= {name: several(told[name]) for name in ("template", "warm_start")}
    return options


def _searched(
    task: Task, asked: Sequence[Study], told: Mapping[str, Any], tools: tuple[Path, Path | None]
) -> StudySet:
    """The set of the studies that are `asked` for, after the search of all, or of its `own`. Their name is
    what all names begin with, "" where that is to be found. `told`: the arguments of `search_shapes`."""
    from evo.loop.turns import Turns

    numbers = _own(told["own"], len(asked))
    show, database = screen(told["progress"]), os.fspath(told["database"])
    with ExitStack() as stack:
        memory = memory_of(asked[0].device) if is_gpu(asked[0].device) else None
        setup = Setup.of(_stand_in(task, asked, memory), *tools)
        pool = stack.enter_context(pool_of(setup, ()))
        store = stack.enter_context(open_store(database, show, create=True))
        name = asked[0].name or _unused(store, f"{task.name}-shapes")
        opens = _Opens(store, setup, several(told["warm_start"]))
        known = records_of(store, name)
        most = told["portfolio"] or portfolio_of(known)
        asked = [replace(one, portfolio=most) for one in asked]
        there = {one.name: replace(one, portfolio=most, until=asked[0].until) for one in known}
        for one in there.values():
            store.keep(one)
        members = {
            number: opens.member(replace(one, name=f"{name}-{number}"), there.get(f"{name}-{number}"))
            for number, one in enumerate(asked, 1)
        }
        shown = stack.enter_context(_Shown(show))
        own = [members.pop(number) for number in numbers]
        elsewhere = {f"{name}-{number}": member for number, member in members.items()}
        turns = Turns(own, store, pool, most, shown.turn, shown.show, elsewhere)
        mine = [there[f"{name}-{number}"] for number in numbers if f"{name}-{number}" in there]
        for said in (_too_short(turns, asked[0].budget_s), _timed_elsewhere(store, mine, pool.gpus)):
            if said:
                show.notice(said)
        found = turns.run(asked[0].budget_s)
    return StudySet(name, database, most, *tools, found)


def _own(text: str | None, count: int) -> list[int]:
    """The problems of a search by their numbers ("1,3"), of so many; all of them where none is named."""
    every = [str(number) for number in range(1, count + 1)]
    named = text.split(",") if text else every
    if not set(named) <= set(every) or len(set(named)) < len(named):
        raise UsageError(f"not numbers of problems: {text}", f"from 1 to {count}, each once: 1,3")
    return [int(number) for number in named]


def _too_short(turns: Turns, budget_s: float) -> str:
    """Which budget gives each problem a turn, and which problems may get none now; "" where all do."""
    least_s, waiting = turns.short_of(budget_s)
    if not waiting:
        return ""
    named = [member.name for member in waiting[:MOST_NAMED]]
    more = f" and {len(waiting) - len(named)} more" if len(waiting) > len(named) else ""
    enough = f"--budget {math.ceil(least_s)}s is not"
    last = f"last in line: {'; '.join(named)}{more}"
    return f"{duration(budget_s)} may be too short for a turn of each problem, {enough}; {last}"


def _timed_elsewhere(store: Store, studies: Sequence[Study], gpus: Sequence[str]) -> str:
    """What is said of times that none of the `gpus` measured; "" where there are none."""
    others = sorted({store.offsets.first_gpu(one) for one in studies} - {"", *gpus})
    if not others:
        return ""
    measured = f"{', '.join(others)} measured what is there, and this is another GPU of that model"
    return f"{measured}: their times differ by 1 or 2 % as a rule, and are taken as equal here"


def texts_of(task: Task, shapes: Sequence[Shape]) -> list[str]:
    """Shapes and names of sets as texts; of a file each line that is not empty and is no comment (#)."""
    found: list[str] = []
    for shape in shapes:
        text = shape_text(task, shape)
        path = Path(text)
        if not path.is_file():
            found.append(text)
            continue
        lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
        found += [line for line in lines if line]
    return found


def _unused(store: Store, base: str) -> str:
    """`base` and the first number under which there is no study yet."""
    taken = {study.name for study in store.studies()}
    number = 1
    while any(name.startswith(f"{base}-{number}-") for name in taken):
        number += 1
    return f"{base}-{number}"


def _stand_in(task: Task, asked: Sequence[Study], memory: int | None) -> Study:
    """The study whose problem stands for all where one must: half of them move more bytes. The largest, where
    a GPU with so many bytes of `memory` has not room for several evaluators of it; None: there is room."""
    from evo.cores import MOST_EVALUATORS
    from evo.gate.room import gate_bytes, set_bytes
    from evo.timing import TimingSettings

    every = sorted(asked, key=lambda one: task.nbytes(one.problem))
    largest = every[-1].problem
    each = gate_bytes(task, largest) + TimingSettings.sets * set_bytes(task, largest) + HELD_BYTES
    room = memory is None or MOST_EVALUATORS * each <= memory
    return every[len(asked) // 2] if room else every[-1]


class _Opens:
    """Opens the studies of problems that differ in nothing else, with templates that were loaded once."""

    def __init__(self, store: Store, setup: Setup, warm_start: Sequence[str]) -> None:
        self._store, self._setup, self._warm_start = store, setup, warm_start

    def member(self, asked: Study, found: Study | None) -> Member:
        """A problem, and its study: the one that was `found`, or a new one with the problem's first turn."""
        from evo.loop import search_spaces
        from evo.loop.member import Member

        if found is not None and found.problem.key != asked.problem.key:
            hint = "the same shapes in the same order, or another --study"
            raise UsageError(f"study {found.name} searches {found.problem.key}", hint)

        def opened(without: Collection[str], points: bool) -> tuple[Study, Mapping[str, SearchSpace]]:
            nonlocal found
            if found is not None:
                return found, self._spaces_of(found, points)
            every = self._setup.templates
            try:
                left = [one for one in every if one.name not in without]
                spaces = search_spaces(left, self._setup.limits, asked.problem)
            except UsageError:  # no others serve
                spaces = search_spaces(every, self._setup.limits, asked.problem)
            found = created(self._store, asked, spaces, self._warm_start)
            return found, spaces

        return Member(asked.problem, opened, found)

    def _spaces_of(self, found: Study, points: bool) -> Mapping[str, SearchSpace]:
        """The space of a study that is there: that of its own templates, as it was told to be searched."""
        from evo.loop import search_spaces

        setup, known = self._setup, {template.name for template in self._setup.templates}
        told = [(one.gpu, one.target, one.smem_limit, one.folders) for one in (found, setup.study)]
        if told[0] != told[1] or not known.issuperset(found.templates):
            setup = Setup.of(found, setup.cache, setup.nvcc)
            known = set(found.templates)
        spaces = search_spaces(setup.templates, setup.limits, found.problem, points)
        return {name: space for name, space in spaces.items() if name in found.templates}


class _Shown:
    """Shows each turn: a line that says whose it is, and the view of its search."""

    def __init__(self, show: Screen) -> None:
        self._screen = show
        self._turn = ExitStack()
        self.show: Callable[[Any], None] = lambda _: None

    def turn(self, member: Member, text: str) -> None:
        self._turn.close()
        self._screen.notice(f"{member.name}: {text}")
        view = self._turn.enter_context(self._screen.view())
        self.show = view.show

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self._turn.close()
