"""What every template must keep to, whatever it renders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from evo.cache import default_folder
from evo.device.open import gpu_that_runs
from evo.errors import CandidateError
from evo.evaluate import EvaluatorSpec
from evo.gpu import Limits
from evo.task import Task, load_task
from evo.template import Template, load_template
from evo.trial import Point, Problem, body_of


class TemplateTests:
    """Set `task` and `template` (and `folders`, where they do not come with evo). `points` feasible points
    are drawn for each of `problems` (shape texts; by default the task's example) and go through compiler and
    gate on the emulator."""

    task: ClassVar[str]
    template: ClassVar[str]
    folders: ClassVar[tuple[Path, ...]] = ()
    problems: ClassVar[tuple[str, ...]] = ()
    points: ClassVar[int] = 2
    cache: ClassVar[Path | None] = None
    """The cache's folder (default: evo's own)."""

    @pytest.fixture
    def loaded(self) -> Template:
        return load_template(load_task(self.task, self.folders), self.template, self.folders)

    def served(self, task: Task) -> list[Problem]:
        return [task.problem(shape) for shape in self.problems] or [task.example]

    def limits(self, loaded: Template) -> Limits:
        return Limits.of(gpu_that_runs(loaded.needs))

    def drawn(self, loaded: Template) -> Iterator[tuple[Problem, Point]]:
        """The default where it is feasible, and random feasible points."""
        rng, limits = np.random.default_rng(0), self.limits(loaded)
        for problem in self.served(loaded.task):
            feasible = loaded.space.feasible(limits, problem)
            default = loaded.space.default_for(problem, limits)
            if feasible.contains(default):
                yield problem, default
            for _ in range(self.points):
                yield problem, feasible.sample(rng)

    def test_it_serves_its_problems(self, loaded: Template) -> None:
        for problem in self.served(loaded.task):
            assert loaded.supports(problem, self.limits(loaded)) is None
            assert len(loaded.space.feasible(self.limits(loaded), problem).indices)

    def test_every_parameter_has_a_meaning(self, loaded: Template) -> None:
        for parameter in loaded.space.parameters:
            assert parameter.meaning, f"{parameter.name}: say what it is"

    def test_every_hole_is_filled_and_every_parameter_used(self, loaded: Template) -> None:
        declared = {p.name for p in loaded.space.parameters}
        derived = set(loaded.derived(loaded.space.default, loaded.task.example))
        assert loaded.holes() <= declared | derived
        changing = {
            name
            for name in declared
            if any(self.changes(loaded, name, problem) for problem in self.served(loaded.task))
        }
        assert changing == declared, "these parameters change neither source nor launch"

    def changes(self, loaded: Template, name: str, problem: Problem) -> bool:
        """Whether another value of a parameter gives another program; True where it has one value alone."""
        default = dict(loaded.space.default_for(problem, self.limits(loaded)))
        others = [value for value in loaded.space[name].values if value != default[name]]
        one, *programs = (
            (body_of(rendered.source), rendered.launch)
            for rendered in (
                loaded.candidate({**default, name: value}, problem) for value in (default[name], *others)
            )
        )
        return not others or any(other != one for other in programs)

    def test_a_source_renders_alike_and_says_where_it_comes_from(self, loaded: Template) -> None:
        for problem, point in self.drawn(loaded):
            one, same = (loaded.candidate(point, problem) for _ in range(2))
            assert one == same
            assert one.source.startswith("// evo ")
            assert problem.key in one.source

    def test_drawn_points_are_compiled_and_pass_the_gate(self, loaded: Template) -> None:
        limits = self.limits(loaded)
        cache = self.cache or default_folder()
        spec = EvaluatorSpec(self.task, "emulator", limits.gpu, limits, cache, folders=self.folders)
        evaluator = spec.build()
        try:
            for problem, point in self.drawn(loaded):
                try:
                    evaluator.gate(loaded.candidate(point, problem), 0, thorough=False)
                except CandidateError as error:
                    where = f"{problem.key} {dict(point)} at {error.where}"
                    pytest.fail(f"{error.outcome} {error.reason}: {error.detail}; {where}")
        finally:
            evaluator.close()
