"""A task: its problems, inputs, high-precision reference, baselines and work. `load_task` finds it by name.

A task is a folder `templates/<name>/` with a `task.py` that defines `TASK`. It is Python and runs with all
rights of whoever starts evo: read a task or template file of others before using it, as any program.
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import evo
from evo.errors import BadTemplate, UnknownName, UsageError
from evo.trial import Problem, Value

if TYPE_CHECKING:  # importing torch takes seconds: only those who compute pay for it
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
"""The buffers of a task by name."""
Baseline = Callable[[Tensors], Any]
"""An implementation to beat: it takes the inputs by name and returns the output."""


class Tunable:
    """A baseline with settings, of which none is the fastest everywhere: each of its `variants` computes the
    same. Who times it times them all (evo.timing), the libraries' own tuning being luck where a call takes a
    few µs, and then says by `choose` which one it is from now on. Until then it is the first."""

    def __init__(self, variants: Mapping[str, Baseline]) -> None:
        self.variants = dict(variants)
        self.chosen: str | None = None
        """The name of the variant that was chosen."""

    def choose(self, name: str) -> None:
        if name not in self.variants:
            raise KeyError(name)
        self.chosen = name

    def __call__(self, inputs: Tensors) -> Any:
        return self.variants[self.chosen or next(iter(self.variants))](inputs)


@dataclass(frozen=True)
class BufferSpec:
    """One buffer that a kernel reads or writes: contiguous, `shape` in elements of `dtype`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out"]


@dataclass(frozen=True)
class Relation:
    """What must hold between two runs, whatever the reference says.

    `change` gives the second run's inputs from the first's; `expected` its outputs from the first's outputs.
    Rows where `expected` is NaN are not compared. `exact`: bit for bit, else to rounding.
    """

    name: str
    change: Callable[[Tensors], dict[str, Tensor]]
    expected: Callable[[Tensors], dict[str, Tensor]]
    exact: bool = False


class Task(ABC):
    """What is to be computed, and how one knows that it was.

    The gate judges row by row: a row is the last dimension of an output.
    """

    name: ClassVar[str]
    problems: Mapping[str, tuple[Problem, ...]]
    """Named sets of problems; the first problem of the first set is the task's example."""
    families: tuple[str, ...]
    """Input families. The first is the plain one, and timing uses it; in the second few terms of a sum carry
    it; in the third the terms are alike, so that roundings on the way add up; in the last one term, which may
    be any, is far above all others, so that whoever overlooks one is seen. Others as the task needs."""

    packages: Sequence[str] = ()
    """Distributions that baselines come from, besides torch: their versions are kept beside the times."""

    @property
    def mask_family(self) -> str:
        """The family in which a term that is masked by mistake, or not masked, shows most."""
        return self.families[0]

    @property
    def example(self) -> Problem:
        return next(iter(self.problems.values()))[0]

    @abstractmethod
    def problem(self, shape: str, dtype: str = "fp16", **flags: Value) -> Problem:
        """The problem of a shape text such as "1,8,512,64". UsageError if malformed or unsupported."""

    @abstractmethod
    def buffers(self, problem: Problem) -> tuple[BufferSpec, ...]:
        """Inputs and outputs, in the order of the kernel's arguments."""

    @abstractmethod
    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Fresh inputs. The same (problem, family, seed) gives the same values on one kind of device."""

    @abstractmethod
    def reference(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """The outputs in fp64, on the device of the inputs."""

    @abstractmethod
    def honest(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """The outputs as an honest kernel computes them, in the storage type and with its roundings: the
        gate's line is drawn from its errors."""

    def ragged_problems(
        self, problem: Problem, tiles: Sequence[int], far: bool = False,  # noqa: ARG002
    ) -> tuple[Problem, ...]:  # fmt: skip
        """Every small problem whose size may be special to the same kernel: the gate takes a few, others for
        each seed, and for finalists all. `far`: these and larger ones, for finalists alone."""
        return ()

    def some_ragged(
        self,
        problem: Problem,
        tiles: Sequence[int],
        count: int,
        seed: int,
        deep: bool,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
        """About `count` of the ragged problems for one candidate, smaller ones first, others for each seed.
        `deep`: also larger ones, where inputs that are new each time cost nothing more."""
        every = self.ragged_problems(problem, tiles)
        return tuple(
            every[i] for i in sorted(random.Random(seed).sample(range(len(every)), min(count, len(every))))
        )

    def relations(self, problem: Problem) -> tuple[Relation, ...]:  # noqa: ARG002
        """Metamorphic relations that every correct kernel keeps, checked on a small problem."""
        return ()

    @abstractmethod
    def baselines(
        self, problem: Problem, torch_device: str = "cuda", patient: bool = False
    ) -> dict[str, Baseline]:
        """Implementations to beat, by name; only those that run for this problem on this device. `patient`:
        also those whose first call takes seconds (compiled ones); that call may raise RuntimeError."""

    @abstractmethod
    def flop(self, problem: Problem) -> int:
        """Floating-point operations of the definition."""

    @abstractmethod
    def nbytes(self, problem: Problem) -> int:
        """Compulsory traffic: every input read once, every output written once."""

    def share(self, problem: Problem, part: float) -> Problem:  # noqa: ARG002
        """A problem of about `part` (0 to 1) of the work, made of the same independent pieces (heads):
        fewer CTAs, each as busy as before. The problem itself where it has no such pieces."""
        return problem

    @abstractmethod
    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Small problems around the boundaries of a candidate's `tiles`, cheapest and likeliest to fail
        first, that the same kernel must solve (what is baked into its code stays as it is)."""


_NAME = re.compile(r"[a-z][a-z0-9_]*")


def template_folders(extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Where tasks and templates are looked for: `extra` first, then the ones that come with evo."""
    package = Path(evo.__file__).parent
    own = [f for f in (package / "templates", package.parent / "templates") if f.is_dir()]
    return (*(Path(f) for f in extra), *own[:1])


def find_file(relative: str, folders: Sequence[Path]) -> Path | None:
    """The first file of that name below the template folders."""
    found = (folder / relative for folder in template_folders(folders))
    return next((path for path in found if path.is_file()), None)


def list_tasks(folders: Sequence[Path] = ()) -> list[str]:
    """Names of all tasks, sorted."""
    found = (path.parent.name for f in template_folders(folders) for path in f.glob("*/task.py"))
    return sorted({name for name in found if _NAME.fullmatch(name)})


def load_task(name: str, folders: Sequence[Path] = ()) -> Task:
    """The task of that name. UnknownName if there is none; BadTemplate if its file is broken."""
    path = find_file(f"{name}/task.py", folders) if _NAME.fullmatch(name) else None
    if path is None:
        raise UnknownName.among("task", name, list_tasks(folders))
    task = getattr(load_module(path), "TASK", None)
    if not isinstance(task, Task):
        raise BadTemplate(f"{path}:1: defines no TASK", "TASK = YourTask(), a subclass of evo.task.Task")
    return task


def load_module(path: Path) -> ModuleType:
    """Runs a Python file of a template folder. BadTemplate with file and line if that fails."""
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module = ModuleType(f"evo_templates_{key}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    with blame(path):
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


@contextmanager
def blame(path: Path) -> Iterator[None]:
    """Turns whatever the code of a template file raises into a BadTemplate with the file's own line."""
    try:
        yield
    except SyntaxError as error:
        raise BadTemplate(
            f"{path}:{error.lineno or 1}: {error.msg}", "the file is not valid Python"
        ) from error
    except UsageError as error:
        if f"{path}:" in error.message:
            raise
        raise BadTemplate(f"{path}:{_line_in(path, error)}: {error.message}", error.hint) from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise BadTemplate(
            f"{path}:{_line_in(path, error)}: {what}", "the template's Python code failed"
        ) from error


def _line_in(path: Path, error: Exception) -> int:
    """The innermost line of `path` in the traceback of `error`."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] or 1 if lines else 1
