"""Where a search looks: the feasible points of each template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evo.errors import UsageError
from evo.gpu import Limits
from evo.space import FeasibleSet
from evo.template import Template
from evo.trial import Problem


@dataclass(frozen=True)
class SearchSpace:
    """A template and its feasible points."""

    template: Template
    feasible: FeasibleSet


def search_spaces(
    templates: Sequence[Template], limits: Limits, problem: Problem, points: bool = True
) -> dict[str, SearchSpace]:
    """The feasible points of each template that supports `problem` within `limits`, by its name. `points`:
    whether they are at hand; else templates may be among them of which no point is feasible.

    UsageError, with the reasons, where no template does, or no point of any is feasible.
    """
    supported: dict[str, SearchSpace] = {}
    refused: dict[str, str] = {}
    for template in templates:
        if reason := template.supports(problem, limits):
            refused[template.name] = reason
        else:
            found = template.space.feasible if points else template.space.unasked
            supported[template.name] = SearchSpace(template, found(limits, problem))
    if not supported:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise UsageError(f"no template serves {problem.key}", reasons)
    if not points:
        return supported
    spaces = {name: space for name, space in supported.items() if len(space.feasible.indices)}
    if not spaces:
        for space in supported.values():
            space.feasible.require_some()
    return spaces
