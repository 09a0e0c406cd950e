"""The sides of a task's buffers as formulas of its sizes, by asking the task at other sizes: K + 8, or
64 x ceil(K / 128)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evo.calls import dimensions_of
from evo.errors import EvoError
from evo.export.reach import product_of
from evo.launch.dispatch import Number
from evo.task import Task
from evo.trial import Problem, Value

MULTIPLES = (1, 2, 3, 5, 8)
Side = str | Number | None


def sides_of(task: Task, flags: Mapping[str, Value]) -> dict[str, list[Side]]:
    """By buffer: each side is a size's name, a number, a formula, or None where none was found."""
    own = task.example.replace(**flags)
    asked = list(_problems(task, own))
    shapes = [{spec.name: spec.shape for spec in task.buffers(problem)} for problem in asked]

    def side(name: str, at: int, said: str | int | None) -> Side:
        if said is not None:
            return said
        lengths = [shape[name][at] for shape in shapes]
        return _formula([dict(problem.sizes) for problem in asked], lengths)

    named = dimensions_of(task, flags)
    return {name: [side(name, at, one) for at, one in enumerate(sides)] for name, sides in named.items()}


def _problems(task: Task, own: Problem) -> Iterator[Problem]:
    """The example first, then with one size at a time another one, as far as the task allows it."""
    yield own
    for name, size in own.sizes.items():
        for other in {size + 1, size + 7, *(size * n for n in MULTIPLES), *(size // n for n in MULTIPLES)}:
            problem = own.replace(**{name: other})
            if other > 0 and other != size and _allowed(task, problem):
                yield problem


def _allowed(task: Task, problem: Problem) -> bool:
    try:
        task.validate(problem)
    except EvoError:
        return False
    return True


def _formula(sizes: list[dict[str, int]], lengths: list[int]) -> Side:
    for name in sizes[0]:
        apart = {length - one[name] for one, length in zip(sizes, lengths, strict=True)}
        if len(apart) == 1:
            return {"times": 1, "of": [[name, 1]], "plus": apart.pop()}
    return product_of(list(zip(sizes, lengths, strict=True)), sizes[0])
