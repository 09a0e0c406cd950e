"""One search for many problems, from what a person asks for to its portfolio."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.running import created, open_store, pool_of
from evo.api.search import asked_for, chosen
from evo.api.values import parse_budget, parse_problems, task_folders
from evo.errors import UsageError
from evo.report.screen import Screen, screen
from evo.study import Setup, Study
from evo.task import Task, load_task

if TYPE_CHECKING:
    from evo.loop import SearchSpace
    from evo.loop.member import Member
    from evo.loop.turns import Found
    from evo.store import Store
    from evo.trial import Problem

MOST_PROBLEMS = 1000


def search_shapes(
    task: str,
    *,
    shapes: Sequence[str],
    portfolio: int,
    study: str | None,
    flag: Sequence[str] | None,
    dtype: str | None,
    templates: Sequence[Path] | None,
    warm_start: Sequence[str] | None,
    database: str,
    cache: Path,
    nvcc: Path | None,
    progress: bool = True,
    **options: Any,
) -> tuple[str, Found]:
    """Searches all problems that `shapes` name, for one budget, and chooses at most `portfolio` kernels for
    them; the name that its studies begin with, and what was found. A study of the same name and problem goes
    on. `options`: the others of `evo search`.

    UsageError for what cannot be, MachineError for what this machine lacks, NothingFound where no problem has
    a correct kernel."""
    from evo.loop.turns import Turns

    folders = task_folders(templates)
    loaded = load_task(task, folders)
    problems = parse_problems(loaded, texts_of(shapes), dtype, flag or ())
    if not 1 < len(problems) <= MOST_PROBLEMS:
        raise UsageError(
            f"--shapes names {len(problems)} problems", f"from 2 to {MOST_PROBLEMS}; else --shape"
        )
    first = _asked(loaded, problems[0], folders, **options)
    if len(first.gpus) > 1:
        raise UsageError("a search for many problems runs on one GPU", "one of them: --gpus 0")
    asked = [replace(first, problem=problem) for problem in problems]
    show = screen(progress)
    with ExitStack() as stack:
        setup = Setup.of(_middle(loaded, asked), cache, nvcc)
        pool = stack.enter_context(pool_of(setup, None))
        store = stack.enter_context(open_store(database, show, create=True))
        name = study or _unused(store, f"{task}-shapes")
        opens = _Opens(store, setup, warm_start or ())
        there = {one.name: one for one in store.studies()}
        members = [
            opens.member(replace(one, name=f"{name}-{number}"), there.get(f"{name}-{number}"))
            for number, one in enumerate(asked, 1)
        ]
        shown = stack.enter_context(_Shown(show))
        turns = Turns(members, store, pool, portfolio, shown.turn, shown.show)
        return name, turns.run(first.budget_s)


def _asked(
    task: Task,
    problem: Problem,
    folders: Sequence[Path],
    *,
    budget: str,
    rate: float | None,
    strategy: str,
    seed: int,
    workers: int | None,
    device: str,
    gpu: str | None,
    gpus: str | None,
    target: str | None,
    smem_limit: str | None,
    until: str,
    **others: Any,
) -> Study:
    """The study of the first problem, for the budget of all."""
    where, several = (
        (device, gpu, gpus, target, None),
        chosen(strategy, seed, workers, smem_limit, rate, until),
    )
    return asked_for(
        task, problem, folders, parse_budget(budget, rate), where=where, chosen=several, **others
    )


def texts_of(shapes: Sequence[str]) -> list[str]:
    """Shapes and names of sets; of a file each line that is not empty and is no comment (#)."""
    found: list[str] = []
    for text in shapes:
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


def _middle(task: Task, asked: Sequence[Study]) -> Study:
    """The study whose problem stands for all where one must: half of them move more bytes."""
    return sorted(asked, key=lambda one: task.nbytes(one.problem))[len(asked) // 2]


class _Opens:
    """Opens the studies of problems that differ in nothing else, with templates that were loaded once."""

    def __init__(self, store: Store, setup: Setup, warm_start: Sequence[str]) -> None:
        from evo.loop.spaces import SpacesOfMany

        self._store, self._setup, self._warm_start = store, setup, warm_start
        self._spaces = SpacesOfMany(setup.templates, setup.limits)

    def member(self, asked: Study, found: Study | None) -> Member:
        """A problem, and its study: the one that was `found`, or a new one with the problem's first turn."""
        from evo.loop.member import Member

        if found is not None and found.problem.key != asked.problem.key:
            hint = "the same shapes in the same order, or another --study"
            raise UsageError(f"study {found.name} searches {found.problem.key}", hint)

        def opened(without: Collection[str]) -> tuple[Study, Mapping[str, SearchSpace]]:
            nonlocal found
            if found is not None:
                return found, self._spaces_of(found)
            spaces = self._spaces(asked.problem)
            left = {name: space for name, space in spaces.items() if name not in without}
            found = created(self._store, asked, left or spaces, self._warm_start)
            return found, left or spaces

        return Member(asked.problem, opened, found)

    def _spaces_of(self, found: Study) -> Mapping[str, SearchSpace]:
        """The space of a study that is there: that of its own templates, as it was told to be searched."""
        from evo.loop import search_spaces

        setup, known = self._setup, {template.name for template in self._setup.templates}
        told = [(one.gpu, one.target, one.smem_limit, one.folders) for one in (found, setup.study)]
        if told[0] != told[1] or not known.issuperset(found.templates):
            setup = Setup.of(found, setup.cache, setup.nvcc)
            return search_spaces(setup.templates, setup.limits, found.problem)
        spaces = self._spaces(found.problem)
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
