"""Where a search looks: the feasible points of each template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evo.errors import UsageError
from evo.gpu import Limits
from evo.space import FeasibleSet, Narrowing
from evo.template import Template
from evo.trial import Problem


@dataclass(frozen=True)
class SearchSpace:
    """A template and its feasible points."""

    template: Template
    feasible: FeasibleSet


def search_spaces(templates: Sequence[Template], limits: Limits, problem: Problem) -> dict[str, SearchSpace]:
    """The feasible points of each template that supports `problem` within `limits`, by its name.

    UsageError, with the reasons, where no template does, or no point of any is feasible.
    """
    return _spaces(templates, limits, problem, lambda template: template.space.feasible(limits, problem))


class SpacesOfMany:
    """`search_spaces` for many problems, by the same templates and within the same limits."""

    def __init__(self, templates: Sequence[Template], limits: Limits) -> None:
        self._templates, self._limits = templates, limits
        self._narrowed = {template.name: Narrowing(template.space, limits) for template in templates}

    def __call__(self, problem: Problem) -> dict[str, SearchSpace]:
        """See `search_spaces`."""
        return _spaces(
            self._templates, self._limits, problem, lambda one: self._narrowed[one.name].feasible(problem)
        )


def _spaces(
    templates: Sequence[Template],
    limits: Limits,
    problem: Problem,
    feasible: Callable[[Template], FeasibleSet],
) -> dict[str, SearchSpace]:
    supported: dict[str, SearchSpace] = {}
    refused: dict[str, str] = {}
    for template in templates:
        if reason := template.supports(problem, limits):
            refused[template.name] = reason
        else:
            supported[template.name] = SearchSpace(template, feasible(template))
    if not supported:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise UsageError(f"no template serves {problem.key}", reasons)
    spaces = {name: space for name, space in supported.items() if len(space.feasible.indices)}
    if not spaces:
        for space in supported.values():
            space.feasible.require_some()
    return spaces
