"""A task: its problems, inputs, high-precision reference, baselines and work. `load_task` finds it by name.

A task is a folder `templates/<name>/` with a `task.py` that defines `TASK`. It is Python and runs with all
rights of the person who starts evo, as templates do: use only those that you trust, as with any program.
"""

from __future__ import annotations

import hashlib
import math
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
from evo.dtype import dtype_named
from evo.errors import BadTemplate, UnknownName, UsageError
from evo.trial import Problem, Value

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
"""The buffers of a task by name."""
LARGEST_BUFFER = 2**40
"""Elements that a buffer has fewer than."""
LARGEST_TILE = 256
"""Tiles above this size are no reason for a gate problem: it would not be small."""
DEFAULT_TILE = 32
"""Around whose multiples the gate looks for errors where a template names no tile."""
Baseline = Callable[[Tensors], Any]
"""An implementation to beat: it takes the inputs by name and returns the output."""


class Tunable:
    """A baseline with settings, of which none is the fastest everywhere: all `variants` compute the same.
    evo.timing times them all, because the libraries' own tuning is luck where a call takes a few µs. Then it
    says by `choose` which one the baseline is from now on. Until then it is the first."""

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
    """One buffer that a kernel reads or writes: contiguous, `shape` in elements of `dtype` (a name of
    evo.dtype). "inout": it has a content before the launch, and another one afterwards, which is judged."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"]

    @property
    def read(self) -> bool:
        """Whether the kernel may read what it holds before the launch."""
        return self.role != "out"

    @property
    def written(self) -> bool:
        """Whether the kernel may write it."""
        return self.role != "in"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dtype_named(self.dtype).nbytes


@dataclass(frozen=True)
class Flag:
    """A choice that belongs to a problem (attention: `causal`). `--NAME` sets a flag that is true or false,
    `--flag NAME=VALUE` any flag. `meaning` is a sentence for a person."""

    default: Value = False
    values: tuple[Value, ...] = (False, True)
    meaning: str = ""

    def parse(self, name: str, value: object) -> Value:
        """The value meant by `value` (itself, or its text: "true", "1"); else UsageError."""
        for known in self.values:
            same_text = isinstance(value, str) and value.lower() in {str(known).lower(), str(_number(known))}
            if same_text or (value == known and not isinstance(value, str)):
                return known
        allowed = ", ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in self.values)
        raise UsageError(f"flag {name} cannot be {value}", f"one of {allowed}")


def _number(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value


@dataclass(frozen=True)
class Families:
    """The input families of a task, by the role that they have in the gate. Only `plain` is needed.

    Every family is a name that `Task.inputs` takes. The more roles a task fills, the more mistakes the gate
    sees."""

    plain: str
    """Inputs without any trait; kernels are timed on them, unless the task says what else."""
    sharp: str | None = None
    """A few terms of a sum carry it: a lost term or a wrong scale shows."""
    even: str | None = None
    """All terms are alike: roundings on the way add up."""
    lone: str | None = None
    """One term, which may be any, is far above all others: whatever overlooks one term is seen."""
    masked: str | None = None
    """A term that is masked by mistake, or not masked, shows most. It may be one of the others."""
    others: tuple[str, ...] = ()
    """More families, met in turns."""

    @property
    def names(self) -> tuple[str, ...]:
        """All families, each once: plain, sharp, even, the others, and the lone one last."""
        ordered = (self.plain, self.sharp, self.even, *self.others, self.masked, self.lone)
        early = dict.fromkeys(name for name in ordered[:-1] if name is not None and name != self.lone)
        return (*early, *([self.lone] if self.lone else []))


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be off its reference; evo.gate.tolerance says what each number bounds. Integer
    outputs are compared exactly, whatever stands here."""

    row_factor: float = 1.75
    """A row's error may be so many times the honest computation's."""
    element_factor: float = 1.5
    """An element's error may be so many times the honest computation's."""
    row_floor: float = 1.0
    """Units of rounding (2^-11 in fp16, 2^-8 in bf16, 2^-24 in fp32) that every row may be off."""
    few_rows: int = 64
    """A case with fewer rows than this has the two floors that follow."""
    few_rows_floor: float = 1.5
    element_floor: float = 2.0
    """Units of rounding of the largest element that an element may be off."""


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

    A task must say its name, sizes, storage types, problems and families, and define `buffers`, `inputs` and
    `reference`; everything else has a default. The gate judges row by row: a row is the last dimension of an
    output.
    """

    name: ClassVar[str]
    sizes: ClassVar[tuple[str, ...]]
    """Names of a problem's sizes, in the order of a shape text: ("M", "N", "K") for "64,64,128"."""
    dtypes: ClassVar[tuple[str, ...]]
    """Storage types that are served; the first is the default."""
    flags: ClassVar[Mapping[str, Flag]] = {}
    problems: Mapping[str, tuple[Problem, ...]]
    """Named sets of problems; the first problem of the first set is the task's example."""
    families: Families
    tolerance: Tolerance = Tolerance()
    baseline_groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Baselines that are one library's, by a name that tables show: {"SDPA": ("flash", "cudnn")}."""
    packages: Sequence[str] = ()
    """Distributions that baselines come from, besides torch: their versions are kept beside the times."""

    @property
    def example(self) -> Problem:
        return next(iter(self.problems.values()))[0]

    # ---- problems

    def problem(self, shape: str, dtype: str | None = None, **flags: object) -> Problem:
        """The problem of a shape text: one whole number for each of `sizes`, with commas between them, such
        as "1,8,512,64". UsageError if malformed or unsupported."""
        hint = f"{','.join(self.sizes)} as in {self.example.shape}"
        texts = shape.replace(" ", "").split(",")
        if len(texts) != len(self.sizes) or not all(re.fullmatch(r"[0-9]{1,9}", text) for text in texts):
            raise UsageError(f"malformed shape: {shape}", hint)
        sizes = dict(zip(self.sizes, map(int, texts), strict=True))
        if min(sizes.values()) < 1:
            raise UsageError(f"empty shape: {shape}", f"every size is at least 1: {hint}")
        dtype = dtype or self.dtypes[0]
        if dtype not in self.dtypes:
            raise UsageError(f"unsupported dtype: {dtype}", f"one of {', '.join(self.dtypes)}")
        if unknown := set(flags) - set(self.flags):
            known = f"{self.name} has {', '.join(self.flags) if self.flags else 'no flags'}"
            raise UsageError(f"unknown flag: {', '.join(sorted(unknown))}", known)
        chosen = {name: flag.parse(name, flags.get(name, flag.default)) for name, flag in self.flags.items()}
        made = Problem(self.name, sizes, dtype, chosen)
        self.validate(made)
        if any(math.prod(buffer.shape) >= LARGEST_BUFFER for buffer in self.buffers(made)):
            raise UsageError(f"shape too large: {shape}", "a buffer has fewer than 2^40 elements")
        return made

    def validate(self, problem: Problem) -> None:  # noqa: B027 - a task need not refuse anything
        """Raises UsageError for a problem that the task does not define; by default it defines all."""

    def share(self, problem: Problem, part: float) -> Problem:  # noqa: ARG002
        """A problem of about `part` (0 to 1) of the work, made of the same independent pieces (heads):
        fewer CTAs, each as busy as before. The problem itself where it has no such pieces."""
        return problem

    # ---- what is computed

    @abstractmethod
    def buffers(self, problem: Problem) -> tuple[BufferSpec, ...]:
        """Inputs and outputs, in the order of the kernel's arguments."""

    @abstractmethod
    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Fresh contents of all buffers that a kernel may read. The same (problem, family, seed) gives the
        same values on one kind of device."""

    @abstractmethod
    def reference(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """All outputs, on the device of the inputs: of floating-point buffers in fp64, of integer ones in
        their own type or int64."""

    def honest(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """The outputs as an honest kernel computes them, in the storage type and with its roundings: the
        gate's line is drawn from its errors. By default the reference, rounded once."""
        exact = self.reference(problem, inputs)
        types = {buffer.name: dtype_named(buffer.dtype).torch for buffer in self.buffers(problem)}
        return {name: output.to(types[name]) for name, output in exact.items()}

    def relations(self, problem: Problem) -> tuple[Relation, ...]:  # noqa: ARG002
        """Metamorphic relations that every correct kernel keeps, checked on a small problem."""
        return ()

    def baselines(
        self,
        problem: Problem,  # noqa: ARG002
        torch_device: str = "cuda",  # noqa: ARG002
        patient: bool = False,  # noqa: ARG002
    ) -> dict[str, Baseline]:
        """Implementations to beat, by name; only those that run for this problem on this device. `patient`:
        also those whose first call takes seconds (compiled ones); that call may raise RuntimeError."""
        return {}

    def flop(self, problem: Problem) -> int:
        """Floating-point operations of the definition. By default one for each element of all buffers."""
        return sum(math.prod(buffer.shape) for buffer in self.buffers(problem))

    def nbytes(self, problem: Problem) -> int:
        """Compulsory traffic: every input is read once, every output written once."""
        return sum(b.nbytes * (b.read + b.written) for b in self.buffers(problem))

    # ---- what kernels are timed on

    @property
    def timing_inputs(self) -> Mapping[str, str]:
        """Inputs that kernels are timed on, by name, each with why it is there; the first one is the plain
        one. By default there is no other."""
        return {self.families.plain: "the plain family"}

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Fresh contents of all buffers that a kernel may read, as `inputs` gives them, for one of
        `timing_inputs`. By default its names are those of families."""
        return self.inputs(problem, name, seed, torch_device)

    # ---- what the gate tries

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Small problems around the boundaries of a candidate's `tiles`, cheapest and likeliest to fail
        first, that the same kernel must solve (what is baked into its code stays as it is). By default every
        size in turn is one around a tile, and the others are no larger than just beyond the largest tile."""
        known = sorted({int(t) for t in tiles if 1 < t <= LARGEST_TILE}) or [DEFAULT_TILE]
        low, high = known[0], known[-1]
        around = [high + 1, low - 1, 1, 2 * high + 3, high - 1, high, low + 1, low, 2 * high]
        small = problem.replace(**{name: min(size, high + 1) for name, size in problem.sizes.items()})
        found = [small.replace(**{n: size}) for size in dict.fromkeys(around) if size > 0 for n in self.sizes]
        return tuple({at.key: at for at in found}.values())

    def ragged_problems(
        self,
        problem: Problem,  # noqa: ARG002
        tiles: Sequence[int],  # noqa: ARG002
        far: bool = False,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
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
        chosen = random.Random(seed).sample(range(len(every)), min(count, len(every)))
        return tuple(every[index] for index in sorted(chosen))


_NAME = re.compile(r"[a-z][a-z0-9_]*")


def template_folders(extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Where tasks and templates are looked for: `extra` first, then the ones that come with evo. UsageError
    where one of `extra` is not there."""
    if missing := [str(folder) for folder in extra if not Path(folder).is_dir()]:
        hint = "tasks and templates are to be found there: name the folder as it is now, or put it back"
        raise UsageError(f"there is no folder {missing[0]}", hint)
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
