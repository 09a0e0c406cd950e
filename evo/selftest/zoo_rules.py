"""How the kernels of a zoo are made and launched: as its zoo.py says, or as the task's own template does."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evo.errors import BadTemplate
from evo.gpu import Limits
from evo.space import Filling
from evo.task import Task, blame, find_file, folders_of, load_module, load_task
from evo.template import Template, list_templates, load_template
from evo.template.include import Includes
from evo.trial import LaunchConfig, Point, Problem

RULES = "zoo.py"
HINT = "planted kernels are .cu files in TASK/cheats: see docs/gate.md"
ENTRY = "kernel"
"""The name of the kernels beside a zoo.py."""
DRAWN = 3
"""Points of a template, besides the default, at which it must be GREEN."""
_REQUIRED = ("SHAPE", "TILES", "HONEST", "CONTROLS", "prelude", "launch")
_EDIT = re.compile(
    r"^// instead of(?: number (?P<number>\d+))?: (?P<old>.+)\n// there is:(?: (?P<new>.*))?$", re.MULTILINE
)


class ZooRules(ABC):
    """What is common to the kernels of a zoo. A point is that of a template; without one it is empty."""

    entry: str
    loose_baselines: tuple[str, ...] = ()

    @abstractmethod
    def shape(self) -> str:
        """The problem of a file that names none."""

    @abstractmethod
    def controls(self, task: Task) -> dict[str, tuple[Problem, Point]]:
        """For which problems and points the honest kernel must be GREEN, by name."""

    @abstractmethod
    def honest(self, problem: Problem, point: Point) -> str:
        """The source of the honest kernel."""

    @abstractmethod
    def source(self, text: str, problem: Problem, point: Point, path: Path) -> str:
        """The source that the text of a file is."""

    @abstractmethod
    def tiles(self, problem: Problem, point: Point) -> tuple[int, ...]:
        """Tile sizes, around which the gate looks."""

    @abstractmethod
    def launch(self, problem: Problem, point: Point, rendered_for: Problem) -> LaunchConfig:
        """How a kernel is launched."""


@dataclass(frozen=True)
class WrittenRules(ZooRules):
    """Those of a zoo.py."""

    path: Path
    module: Any
    entry: str = ENTRY

    @classmethod
    def of(cls, path: Path) -> WrittenRules:
        module = load_module(path)
        if missing := [name for name in _REQUIRED if not hasattr(module, name)]:
            raise BadTemplate(f"{path}:1: does not define {', '.join(missing)}", HINT)
        return cls(path, module)

    @property
    def loose_baselines(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(getattr(self.module, "LOOSE_BASELINES", ()))

    def shape(self) -> str:
        return str(self.module.SHAPE)

    def controls(self, task: Task) -> dict[str, tuple[Problem, Point]]:
        with blame(self.path):
            return {
                name: (task.problem(shape, dtype, **flags), {})
                for name, (shape, dtype, flags) in self.module.CONTROLS.items()
            }

    def honest(self, problem: Problem, point: Point) -> str:
        return self.source(self.module.HONEST, problem, point, self.path)

    def source(self, text: str, problem: Problem, _point: Point, path: Path) -> str:
        """The text after the zoo's prelude. Quoted includes are pasted: files beside it or beside the zoo.py,
        else those that the task's templates can include."""
        for name in re.findall(r'^#include "([\w/.]+)"$', text, re.MULTILINE):
            found = [at for at in (path.parent / name, self.path.parent / name) if at.is_file()]
            if found:
                text = text.replace(f'#include "{name}"', found[0].read_text(encoding="utf-8"))
        folder = self.path.resolve().parents[:3][-1]
        text = Includes(problem.task, (folder,)).paste(text, path)
        with blame(self.path):
            return f"{self.module.prelude(problem)}{text}"

    def tiles(self, _problem: Problem, _point: Point) -> tuple[int, ...]:
        return tuple(self.module.TILES)

    def launch(self, problem: Problem, _point: Point, _rendered_for: Problem) -> LaunchConfig:
        with blame(self.path):
            usual: LaunchConfig = self.module.launch(problem)
        return usual


@dataclass(frozen=True)
class TemplateRules(ZooRules):
    """Those of a template: a file says which lines of its source are others, or is a source of its own."""

    template: Template
    entry: str
    loose_baselines: tuple[str, ...] = ("eager", "compiled")
    """They compute as the reference does, in the storage type."""

    def _values(self, point: Point, rendered_for: Problem) -> Filling:
        return self.template.space.filling(self._point(point), rendered_for, self.template.gpu)

    def _point(self, point: Point) -> Point:
        return self.template.space.completed(point)

    def shape(self) -> str:
        return self.template.task.example.shape

    def controls(self, task: Task) -> dict[str, tuple[Problem, Point]]:
        """The example in every storage type, and at a few points that are drawn."""
        default = self.template.space.default
        of_types = {dtype: task.example.replace(dtype=dtype) for dtype in task.dtypes}
        found: dict[str, tuple[Problem, Point]] = {name: (at, default) for name, at in of_types.items()}
        feasible = self.template.space.feasible(Limits.of(self.template.gpu), task.example)
        rng = np.random.default_rng(0)
        for _ in range(DRAWN):
            point = feasible.sample(rng)
            found[" ".join(f"{name}={value}" for name, value in point.items())] = (task.example, point)
        return found

    def honest(self, problem: Problem, point: Point) -> str:
        return self.template.candidate(self._point(point), problem).source

    def source(self, text: str, problem: Problem, point: Point, path: Path) -> str:
        edits = list(_EDIT.finditer(text))
        if not edits:
            values = self._values(point, problem)
            values.update(self.template.derived(values, problem))
            return "".join(f"#define {name} {value}\n" for name, value in values.items()) + text
        source = self.honest(problem, point)
        for edit in edits:
            source = _edited(source, edit, path)
        return source

    def tiles(self, problem: Problem, point: Point) -> tuple[int, ...]:
        return self.template.tiles(self._point(point), problem)

    def launch(self, problem: Problem, point: Point, rendered_for: Problem) -> LaunchConfig:
        return self.template.launch(self._values(point, rendered_for), problem)


def _edited(source: str, edit: re.Match[str], path: Path) -> str:
    """The source with one change. BadTemplate unless it is clear where."""
    old, new, number = edit["old"], edit["new"] or "", int(edit["number"] or 1)
    parts = source.split(old)
    count = len(parts) - 1
    if count < number or (count > 1 and not edit["number"]):
        hint = "the text of one place, or `// instead of number 2: TEXT`"
        raise BadTemplate(f"{path}:1: the honest kernel has {count} times: {old}", hint)
    return old.join(parts[:number]) + new + old.join(parts[number:])


def rules_file(task: Task, folders: Sequence[Path]) -> Path | None:
    """What says how a task's planted kernels are launched: its zoo.py, else the Python file of its first
    template, where it has planted kernels."""
    if written := find_file(f"{task.name}/cheats/{RULES}", folders):
        return written
    own = next((f for f in folders_of(task.name, folders) if (f / task.name / "task.py").is_file()), None)
    names = list_templates(task.name, folders)
    return own / task.name / f"{names[0]}.py" if own and names else None


@cache
def rules_of(path: Path) -> ZooRules:
    """The rules of a file that `rules_file` names, once in a process."""
    if path.name == RULES:
        return WrittenRules.of(path)
    folder = path.parent
    template = load_template(load_task(folder.name, (folder.parent,)), path.stem, (folder.parent,))
    return TemplateRules(template, template.entry)
