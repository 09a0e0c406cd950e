"""What must hold between two launches of a candidate, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator
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
    guarded: GuardedMemory, relation: Relation | None, first: Tensor, image: Tensor, tolerance: Tolerance
) -> Tensor:
    """Whether the launch before `image` did damage, or is not what the relation expects of the `first`
    launch's image. (1,), true or false; does not wait."""
    import torch

    same = relation is not None and same_again(relation)
    if same:
        guarded.expect_outputs(first)
    damaged = guarded.unlike(image[None], same_outputs=same)
    if relation is None or same:
        return damaged
    before, after = guarded.outputs(first), guarded.outputs(image)
    wrong = [rows.any().reshape(1) for *_, rows in broken(relation, before, after, tolerance)]
    return torch.cat((damaged, *wrong)).any().reshape(1) if wrong else damaged


def titled(schedule: str, relation: Relation | None) -> str:
    """Which launch of a relation is meant."""
    return f"schedule={schedule}{'' if relation is None else f' {relation.name}'}"
