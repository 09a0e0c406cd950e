"""`evo.capture`: records the inputs of a running model's calls, for `evo search --inputs`.

A torch function mode sees every call of torch's functions, with the arguments that the model gave. Each task
says which functions are its own, and what a call's arguments are in its buffers and flags (`Task.captures`).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from evo.calls.file import Entry, RecordedCall, check_form, holds, write_calls
from evo.calls.problem import problem_of
from evo.dtype import DTYPES
from evo.errors import BadTemplate, UsageError, kind_of
from evo.task import Task, list_tasks, load_task
from evo.trial import Problem

CALLS_PER_SHAPE = 4
LIMIT = 512 << 20
COMPOSED = "torch.nn.functional"
"""Its functions are Python: what they call is recorded, too."""
_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def capture(
    path: str | Path,
    *,
    calls_per_shape: int = CALLS_PER_SHAPE,
    limit: int = LIMIT,
    templates: Sequence[str | Path] = (),
) -> Capture:
    """A context manager: what the model calls inside is recorded, and at its end written to `path`
    (.safetensors, or .npz, which has no bf16).

        with evo.capture("calls.safetensors"):
            model(batch)

    Of each problem (shape, flags, storage type) it keeps `calls_per_shape` calls, drawn from all that there
    were by a fixed seed, and in all at most `limit` bytes (default: 512 MB). `templates`: folders of more
    tasks. At the end it says on stderr what was kept, and what was not and why.

    Recorded are calls of torch's functions in this thread, also those within torch.nn's modules, whose fast
    paths are off meanwhile. Not seen are: functions of other packages (flash_attn, xformers), other threads,
    TorchScript, CUDA graphs that are replayed, and attention that computes its weights (`need_weights=True`).
    Values must be finite. UsageError, MachineError where such a file cannot be written, said at once.
    """
    at = Path(path)
    check_form(at)
    if calls_per_shape < 1 or limit < 1:
        raise UsageError("nothing can be recorded", "calls_per_shape and limit are 1 or more")
    folders = tuple(Path(folder).resolve() for folder in templates)
    tasks = [load_task(name, folders) for name in list_tasks(folders)]
    return Capture(at, tasks, calls_per_shape, limit)


@dataclass
class _Kept:
    """The calls of one problem: those that are kept, by their place among all; and how many there were."""

    calls: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    seen: int = 0


class Capture:
    """What was recorded. `seen` counts the calls of each problem, `kept` those in the file; `skipped` counts
    the others by reason."""

    def __init__(self, path: Path, tasks: Sequence[Task], calls_per_shape: int, limit: int) -> None:
        self.path = path
        self.skipped: Counter[str] = Counter()
        self._calls_per_shape, self._limit = calls_per_shape, limit
        self._kept: dict[Problem, _Kept] = {}
        self._rng = random.Random(0)
        self._count = 0
        readers = [(_named(name), task, read) for task in tasks for name, read in task.captures.items()]
        self._mode = _Mode(readers, torch.compiler.disable(self._record))
        self._bytes = 0

    @property
    def seen(self) -> dict[str, int]:
        return {problem.key: kept.seen for problem, kept in self._kept.items()}

    @property
    def kept(self) -> dict[str, int]:
        return {problem.key: len(kept.calls) for problem, kept in self._kept.items() if kept.calls}

    def __enter__(self) -> Self:
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes what there is, also where the model failed."""
        self._mode.__exit__(kind, error, trace)
        if self.kept:
            write_calls(self.path, *self._contents())
        print("\n".join(self._lines()), file=sys.stderr)

    # ---- recording

    def _record(
        self, task: Task, read: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
    ) -> None:
        """Keeps a call, or counts it."""
        with torch.no_grad():
            self._take(task, read, args, given)

    def _take(
        self, task: Task, read: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
    ) -> None:
        self._count += 1
        try:
            found, flags = read(*args, **given)
            tensors = {name: _plain(name, tensor) for name, tensor in found.items()}
            problem = _problem_of(task, tensors, flags)
        except UsageError as error:
            self.skipped[error.message] += 1
            return
        except TypeError:  # torch will say what is wrong with the arguments
            return
        kept = self._kept.setdefault(problem, _Kept())
        kept.seen += 1
        if not holds(self.path, problem.dtype):
            self.skipped[f"{problem.dtype}, which .npz has not: write a .safetensors file"] += 1
        elif (place := self._place(kept)) is not None:
            self._keep(kept, place, tensors)

    def _place(self, kept: _Kept) -> int | None:
        """Which call gives way to a new one: -1 for none. None where the new one is not kept. So each call is
        kept as likely as any other (Vitter, Random Sampling with a Reservoir, 1985)."""
        if len(kept.calls) < self._calls_per_shape:
            return -1
        drawn = self._rng.randrange(kept.seen)
        return sorted(kept.calls)[drawn] if drawn < self._calls_per_shape else None

    def _keep(self, kept: _Kept, place: int, tensors: Mapping[str, Tensor]) -> None:
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        if place < 0 and self._bytes + nbytes > self._limit:
            self.skipped[f"over the limit of {self._limit / 1e6:.0f} MB"] += 1
            return
        if not all(bool(x.float().isfinite().all()) for x in tensors.values() if x.is_floating_point()):
            self.skipped["NaN or infinity"] += 1
            return
        if place < 0:
            self._bytes += nbytes
        else:
            del kept.calls[place]
        # a copy: the model may go on in the same memory
        copies = {name: x.to("cpu", copy=True).contiguous() for name, x in tensors.items()}
        kept.calls[self._count] = copies

    # ---- what is written and said

    def _contents(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """All tensors, and what is said of the calls: numbered by problem, then by time."""
        tensors: dict[str, Tensor] = {}
        said: dict[str, str] = {}
        for number, (problem, call) in enumerate(self._numbered()):
            tensors |= {f"{number}.{name}": x for name, x in call.items()}
            flags = {name: str(value).lower() for name, value in problem.flags.items()}
            said |= {f"{number}.{name}": text for name, text in {"task": problem.task, **flags}.items()}
        return tensors, said

    def _numbered(self) -> list[tuple[Problem, dict[str, Tensor]]]:
        return [(p, kept.calls[at]) for p, kept in self._kept.items() for at in sorted(kept.calls)]

    def _lines(self) -> list[str]:
        lines, first = [], 0
        for problem, kept in self._kept.items():
            if count := len(kept.calls):
                numbers = ",".join(map(str, range(first, first + count)))
                lines.append(f"{self.path}:{numbers}  {problem.key}, of {_calls(kept.seen)}")
                first += count
        lines = lines or [f"no call was recorded: {self.path} is not written"]
        lines += [f"skipped {_calls(count)}: {why}" for why, count in self.skipped.most_common()]
        if first:
            task = next(p.task for p, kept in self._kept.items() if kept.calls)
            lines.append(f"then: evo search {task} --inputs {self.path}{_choice(self._kept)} --budget 2m")
        return lines


def _calls(count: int) -> str:
    return f"{count} call{'s' if count > 1 else ''}"


def _choice(kept: Mapping[Problem, _Kept]) -> str:
    """The calls of the first problem, where there are several."""
    counts = [len(one.calls) for one in kept.values() if one.calls]
    return f":{','.join(map(str, range(counts[0])))}" if len(counts) > 1 else ""


def _plain(name: str, tensor: Tensor) -> Tensor:
    """The tensor without its history, in the type that autocast gives it. UsageError where it has no memory
    of its own that could be read."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta:
        raise UsageError(f"{name} is no plain tensor but {kind_of(tensor)}")
    tensor, where = tensor.detach(), tensor.device.type
    if torch.is_autocast_enabled(where) and tensor.dtype == torch.float32:
        return tensor.to(torch.get_autocast_dtype(where))
    return tensor


def _problem_of(task: Task, tensors: Mapping[str, Tensor], flags: Mapping[str, object]) -> Problem:
    types = {dtype.torch: dtype.name for dtype in DTYPES.values()}
    entries = {
        name: Entry(name, tuple(x.shape), types.get(x.dtype, str(x.dtype))) for name, x in tensors.items()
    }
    return problem_of(task, RecordedCall(0, entries), flags)


# ---------------------------------------------------------------------------------- what torch calls


Reader = tuple[Callable[..., Any], Task, Callable[..., Any]]
"""A function of torch, the task that it is of, and what reads the arguments of a call."""


class _Mode(TorchFunctionMode):  # type: ignore[misc]
    """Shows the calls of some functions to `record` before they run."""

    def __init__(self, readers: Sequence[Reader], record: Callable[..., None]) -> None:
        super().__init__()
        self._readers, self._record = readers, record

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        for function, task, read in self._readers:
            if func is function:
                self._record(task, read, args, given)
        if isinstance(func, FunctionType) and func.__module__ == COMPOSED:
            with self:
                return _unchecked(func)(*args, **given)
        return func(*args, **given)


@cache
def _unchecked(function: FunctionType) -> FunctionType:
    """The same function, but it does not ask whether a mode wants its call: the mode wants those in it."""
    names = dict.fromkeys(_CHECKS, lambda *_: False)
    found = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    found.__kwdefaults__ = function.__kwdefaults__
    return found


def _named(name: str) -> Callable[..., Any]:
    """The function of that name: "torch.nn.functional.relu"."""
    first, *rest = name.split(".")
    try:
        found: Callable[..., Any] = reduce(getattr, rest, {"torch": torch}[first])
    except (KeyError, AttributeError) as error:
        hint = 'captures = {"torch.nn.functional.relu": call}'
        raise BadTemplate(f"there is no function {name} to be recorded", hint) from error
    return found
