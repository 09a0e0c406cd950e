"""What must hold between two launches of a candidate, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from evo.gate.cases import Case
from evo.gate.memory import GuardedMemory
from evo.gate.tolerance import broken
from evo.task import Relation, Task, Tensors, Tolerance
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor


def relations_of(task: Task, case: Case, exact: bool, torch_device: str) -> Iterator[Relation]:
    """Those of the task, and that the same launch has the same result, at once and after others: a result
    that was kept from an earlier launch shows there. `exact`: the same bits."""
    yield Relation("the same launch again", dict, dict, exact)
    for relation in task.relations(case.problem):
        change = partial(_changed, task, case.problem, relation)
        yield replace(relation, change=change, exact=relation.exact and exact)
    yield Relation(
        "other inputs",
        lambda _: task.inputs(case.problem, case.family, case.seed + 1, torch_device),
        lambda _: {},
    )
    yield Relation("the same launch after others", dict, dict, exact)


def _changed(task: Task, problem: Problem, relation: Relation, inputs: Tensors) -> dict[str, Tensor]:
    """What a relation makes of inputs, packed anew."""
    return task.packed(problem, relation.change(inputs))


def same_again(relation: Relation) -> bool:
    """Whether the second run must have the bits of the first."""
    return relation.exact and relation.expected is dict


def unrelated(
    guarded: GuardedMemory,
    relations: Sequence[Relation | None],
    first: Tensor,
    before: Tensor,
    after: Tensor,
    tolerance: Tolerance,
) -> Tensor:
    """Of each launch whether it did damage, or its outputs are not what its relation (None: no one) expects
    of those in the `first` launch's image. `before` and `after`: images of the memory then, (launches,
    nbytes). (launches,), true or false; does not wait."""
    import torch

    found = []
    for relation, damaged, image in zip(relations, guarded.damaged(before, after), after, strict=True):
        wrong = [damaged]
        if relation is not None and same_again(relation):
            wrong.append(guarded.other_outputs(first, image))
        elif relation is not None:
            outputs = guarded.outputs(first), guarded.outputs(image)
            wrong += [rows.any() for *_, rows in broken(relation, *outputs, tolerance)]
        found.append(torch.stack(wrong).any())
    return torch.stack(found)


def titled(schedule: str, relation: Relation | None) -> str:
    """Which launch of a relation is meant."""
    return f"schedule={schedule}{'' if relation is None else f' {relation.name}'}"
