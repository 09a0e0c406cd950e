"""A candidate's program: its point for other problems, compiled ahead of the evaluators."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache as once
from pathlib import Path

from evo.compile import Compiler, undeclared
from evo.errors import BadTemplate, CandidateError, Infeasible, Red, Unproven, Unrenderable
from evo.gpu import Gpu, Limits
from evo.task import Task
from evo.template import Template, load_template
from evo.trial import Binary, Candidate, LaunchConfig, Outcome, Problem, Trial, body_of

UNDECLARED = "undeclared clock or place"


class Program:
    """A candidate's template and task, so that its point can be rendered for the gate's other problems."""

    def __init__(self, task: Task, folders: Sequence[Path], gpu: Gpu, limits: Limits) -> None:
        self.task = task
        self._limits = limits
        self._template = once(lambda name: load_template(self.task, name, folders, gpu))
        self._why_not: dict[tuple[str, str], str | None] = {}
        """Template and problem -> why it is not served, None where it is: all candidates ask for the same."""

    def template(self, name: str) -> Template:
        """The template of that name, loaded once."""
        return self._template(name)

    def sibling(self, candidate: Candidate, problem: Problem) -> Candidate:
        """The same point for another problem; Infeasible where the template cannot serve it, Unrenderable
        where it fails."""
        if problem.key == candidate.problem.key:
            return candidate
        template = self.template(candidate.template)
        try:
            self._require_served(template, problem)
            return template.sibling(candidate, problem)
        except BadTemplate as error:
            raise Unrenderable.of(error) from error

    def sibling_launch(self, candidate: Candidate, problem: Problem) -> tuple[str, LaunchConfig]:
        """The body of that one's source and its launch alone: a gate asks for some 30 of them."""
        template = self.template(candidate.template)
        try:
            self._require_served(template, problem)
            return template.sibling_launch(candidate, problem)
        except BadTemplate as error:
            raise Unrenderable.of(error) from error

    def _require_served(self, template: Template, problem: Problem) -> None:
        asked = template.name, problem.key
        if asked not in self._why_not:
            self._why_not[asked] = template.supports(problem, self._limits)
        if reason := self._why_not[asked]:
            raise Infeasible(reason)

    def tiles(self, candidate: Candidate) -> tuple[int, ...]:
        """The tile sizes whose boundaries the gate tests; Unrenderable where the template fails."""
        try:
            return self.template(candidate.template).tiles(candidate.point, candidate.problem)
        except BadTemplate as error:
            raise Unrenderable.of(error) from error

    def sources(self, candidate: Candidate) -> list[Candidate]:
        """`candidate`, and those siblings that the gate will ask for whose code is another."""
        tiles = self.tiles(candidate)
        found = {body_of(candidate.source): candidate}
        task, own = self.task, candidate.problem
        for problem in (*task.gate_problems(own, tiles), *task.piece_problems(own, tiles)):
            try:
                sibling = self.sibling(candidate, problem)
            except Infeasible:
                continue
            found.setdefault(body_of(sibling.source), sibling)
        return list(found.values())

    def small_launch(self, candidate: Candidate) -> tuple[Problem, LaunchConfig] | None:
        """The largest of the gate's small problems that the very same code serves, and its launch there."""
        problems = self.task.gate_problems(candidate.problem, self.tiles(candidate))
        for problem in sorted(problems, key=self.task.nbytes, reverse=True):
            try:
                body, launch = self.sibling_launch(candidate, problem)
            except Infeasible:
                continue
            if body == body_of(candidate.source):
                return problem, launch
        return None

    def undeclared(self, candidate: Candidate, binary: Binary) -> tuple[str, ...]:
        """Clocks and places that the kernel reads, and that its template does not declare."""
        return undeclared(binary.reads, self.template(candidate.template).reads, candidate.launch)

    def refuse_undeclared(self, candidate: Candidate, binary: Binary) -> None:
        """Raises Red if there are some: a kernel that can tell when and where it runs may be another one in
        the gate and where it is used."""
        if names := " ".join(self.undeclared(candidate, binary)):
            raise Red(UNDECLARED, f"the kernel reads {names}, which its template does not declare (READS)")


class Precompiler:
    """Compiles candidates ahead of a GPU's evaluator, into the cache they share; for many threads at once."""

    def __init__(self, program: Program, compiler: Compiler, arch: str) -> None:
        self._program, self._compiler, self._arch = program, compiler, arch

    def __call__(self, candidate: Candidate) -> Trial | None:
        """Warms the cache with all that evaluating `candidate` will compile; its Trial if that fails."""
        begin = time.perf_counter()
        try:
            for source in self._program.sources(candidate):
                self._compiler.compile_ahead(source.source, source.entry, self._arch)
        except CandidateError as error:
            seconds = {"compile": time.perf_counter() - begin}
            return failed(candidate, error, seconds=seconds, compiler=self._compiler.version)
        return None

    def close(self) -> None:
        self._compiler.close()


def failed(
    candidate: Candidate,
    error: CandidateError,
    *,
    seconds: Mapping[str, float],
    compiler: str = "",
    binary: Binary | None = None,
    device: str = "",
    versions: Mapping[str, str] | None = None,
) -> Trial:
    """The Trial of a candidate whose journey ended with `error`."""
    return Trial(
        candidate,
        Outcome(error.outcome),
        reason=error.reason,
        detail=error.detail,
        where=error.where,
        resources=binary.resources if binary else None,
        machine_code=binary.machine_code if binary else "",
        compiler=compiler,
        errors=error.errors if isinstance(error, Red | Unproven) else (),
        extent=error.extent if isinstance(error, Unproven) else None,
        seconds=dict(seconds),
        device=device,
        versions=dict(versions or {}),
    )
