"""Calls that a study is checked and timed on beside what its task has: chosen from a file, and found again.

`with_calls` gives the task as the engine sees it then: of the study's own problem there is a gate family for
each call, and each call is one more timing input.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evo.calls.file import RecordedCall, read_calls, read_tensors
from evo.calls.problem import problem_of
from evo.dtype import types_hint
from evo.errors import UsageError
from evo.task import Task
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

OWN_FAMILY = "own data"
"""The gate's families of recorded calls begin with this; then comes the call's number."""
MOST_CALLS = 8
"""Each call takes time in the gate and in timing."""
CHECKED_FLOP = 1e9
"""Of calls up to so much work it is looked at once, on the host, whether a result overflows: about 0.2 s."""


@dataclass(frozen=True)
class OwnCalls:
    """Calls of a file: its absolute path, the SHA-256 of all its bytes (64 hex digits), and their numbers.
    `name` is what timing inputs are named after; it stays when the file moves."""

    path: str
    digest: str
    numbers: tuple[int, ...]
    name: str

    @property
    def names(self) -> dict[str, int]:
        """The timing inputs that they are: "NAME:CALL"."""
        return {f"{self.name}:{number}": number for number in self.numbers}

    @property
    def families(self) -> dict[str, int]:
        """The gate's families that they are."""
        return {f"{OWN_FAMILY} {number}": number for number in self.numbers}

    @property
    def label(self) -> str:
        """What tells studies on different calls apart: equal for equal calls of equal files."""
        return f"{self.digest[:12]}:{','.join(map(str, self.numbers))}"

    def located(self, path: Path | None = None) -> OwnCalls:
        """These calls where the file is now: at `path`, else where it was. UsageError where it has gone, or
        is another file."""
        at = (path or Path(self.path)).absolute()
        hint = f"name the file as it is now: --inputs FILE (SHA-256 {self.digest})"
        if not at.is_file():
            raise UsageError(f"the inputs of the study are gone: there is no file {at}", hint)
        if (digest := digest_of_file(at)) != self.digest:
            what = f"{at} is not the file of the study's inputs: its SHA-256 is {digest}"
            raise UsageError(what, f"{hint}; or search anew on this one")
        return replace(self, path=str(at))


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, 64 hex digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", "") from error


# ---------------------------------------------------------------------------------- choosing calls


def chosen_calls(
    task: Task,
    text: str,
    wanted: Sequence[Problem] = (),
    *,
    dtype: str | None = None,
    flags: Mapping[str, object] | None = None,
) -> dict[Problem, OwnCalls]:
    """The calls that "FILE" or "FILE:0,2" names, by the problems that they are of. Given any of these, only
    those of a shape of `wanted`, of the storage type `dtype`, and with these `flags` are taken; flags also
    say what the file does not. UsageError where there are none, or where one cannot be used."""
    if dtype is not None and dtype not in task.dtypes:
        raise UsageError(f"unsupported dtype: {dtype}", types_hint(dtype, task.dtypes))
    path, numbers = _parsed(text)
    calls = [call for call in read_calls(path) if call.said.get("task", task.name) == task.name]
    if not calls:
        raise UsageError(f"{path} has no calls of {task.name}", "its metadata names another task")
    if missing := set(numbers) - {call.number for call in calls}:
        hint = f"it has {_listed([call.number for call in calls])}"
        raise UsageError(f"{path} has no call {min(missing)}", hint)
    asked = {name: task.flags[name].parse(name, value) for name, value in (flags or {}).items()}
    sizes = wanted[0].sizes if wanted else {}
    every: dict[Problem, list[RecordedCall]] = {}
    for call in calls:
        if not numbers or call.number in numbers:
            every.setdefault(_problem_of(task, call, path, asked, sizes), []).append(call)
    shapes = {problem.shape for problem in wanted}
    fit = {
        problem: found
        for problem, found in every.items()
        if (not shapes or problem.shape in shapes)
        and (dtype is None or problem.dtype == dtype)
        and all(problem.flags[name] == value for name, value in asked.items())
    }
    if not fit:
        said = [*sorted(shapes), *([dtype] if dtype else []), *(f"{n}={v}" for n, v in asked.items())]
        raise UsageError(f"{path} has no call of {' '.join(said)}", f"it has {_by_problem(every)}")
    digest = digest_of_file(path)
    for problem, found in fit.items():
        _refuse_too_many(path, found)
        for call in found:
            _check_values(task, problem, path, call)
    where = str(path.absolute())
    return {
        problem: OwnCalls(where, digest, tuple(call.number for call in found), path.stem)
        for problem, found in fit.items()
    }


def only_problem(text: str, found: Mapping[Problem, OwnCalls]) -> tuple[Problem, OwnCalls]:
    """The one problem of chosen calls. UsageError where there are several: a study has one."""
    if len(found) > 1:
        path, _ = _parsed(text)
        listed = "; ".join(f"{path}:{_numbers(own.numbers)} ({p.key})" for p, own in found.items())
        raise UsageError(
            f"{path} has calls of {len(found)} problems, and a study has one",
            f"say --shape and flags, or name the calls: {listed}",
        )
    return next(iter(found.items()))


def _parsed(text: str) -> tuple[Path, tuple[int, ...]]:
    """The file and the numbers of "FILE:0,2"; no numbers: all of its calls."""
    match = re.fullmatch(r"(.+):([0-9,]+)", text, re.DOTALL)
    if match is None or Path(text).is_file():
        return Path(text), ()
    words = match[2].split(",")
    if not all(re.fullmatch(r"[0-9]{1,6}", word) for word in words):
        raise UsageError(f"malformed calls: {text}", "--inputs FILE, FILE:2 or FILE:0,2,5")
    return Path(match[1]), tuple(dict.fromkeys(map(int, words)))


def _problem_of(
    task: Task, call: RecordedCall, path: Path, flags: Mapping[str, object], sizes: Mapping[str, int]
) -> Problem:
    try:
        return problem_of(task, call, flags, sizes)
    except UsageError as error:
        hint = error.hint or f"tensors are to be as {task.name} has them: docs/your-own-data.md"
        raise UsageError(f"{path}, call {call.number}: {error.message}", hint) from error


def _refuse_too_many(path: Path, calls: Sequence[RecordedCall]) -> None:
    if len(calls) > MOST_CALLS:
        some = _numbers([call.number for call in calls[:: -(-len(calls) // MOST_CALLS)]])
        raise UsageError(
            f"{path} has {len(calls)} calls of one problem; a study takes {MOST_CALLS} at most",
            f"choose some: --inputs {path}:{some}",
        )


def _check_values(task: Task, problem: Problem, path: Path, call: RecordedCall) -> None:
    """Refuses values of which nothing is promised: NaN, infinity, and those that the task does not take."""
    tensors = read_tensors(path, call)
    for name, tensor in tensors.items():
        where = f"{path}, call {call.number}: {name}"
        plain = tensor.float() if tensor.element_size() == 1 else tensor  # torch counts no fp8
        if not bool(plain.isfinite().all()):
            hint = "of NaN and infinity nothing is promised: a kernel could not be checked on them"
            raise UsageError(f"{where} has NaN or infinity", hint)
        ends = task.tensors[name].range_of(problem) if name in task.tensors else None
        if ends is not None:
            low, high = float(tensor.double().min()), float(tensor.double().max())
            inside = high <= ends[1] if tensor.is_floating_point() else high < ends[1]
            if low < ends[0] or not inside:
                hint = f"{task.name} takes {name} from {ends[0]} to {ends[1]}"
                raise UsageError(f"{where} is between {low:g} and {high:g}", hint)
    if task.flop(problem) > CHECKED_FLOP:  # else the gate says it, of each kernel
        return
    for name, output in task.honest(problem, tensors).items():
        if output.is_floating_point() and not bool(output.double().isfinite().all()):
            hint = "a result beyond the storage type cannot be checked: scale the inputs"
            raise UsageError(f"{path}, call {call.number}: {name} overflows in {problem.dtype}", hint)


def _by_problem(found: Mapping[Problem, Sequence[RecordedCall]]) -> str:
    return "; ".join(f"{p.key} ({_listed([c.number for c in calls])})" for p, calls in found.items())


def _listed(numbers: Sequence[int]) -> str:
    return f"call{'s' if len(numbers) > 1 else ''} {_numbers(numbers)}"


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


# ---------------------------------------------------------------------------------- a task that has calls


def with_calls(task: Task, problem: Problem | None, calls: OwnCalls | None) -> Task:
    """`task`, with these calls of `problem` among its families and timing inputs; itself without any."""
    if calls is None or problem is None:
        return task
    return cast(Task, _TaskWithCalls(task, problem, calls))


class _TaskWithCalls:
    """A task, and recorded calls of one of its problems, which are read when they are first asked for."""

    def __init__(self, task: Task, problem: Problem, calls: OwnCalls) -> None:
        self._task, self._problem, self._calls = task, problem, calls
        self._kept: dict[tuple[int, str], Mapping[str, Tensor]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    @property
    def timing_inputs(self) -> Mapping[str, str]:
        said = f"recorded in {Path(self._calls.path).name}"
        return {**self._task.timing_inputs, **dict.fromkeys(self._calls.names, said)}

    def own_families(self, problem: Problem) -> tuple[str, ...]:
        return tuple(self._calls.families) if problem.key == self._problem.key else ()

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        number = self._calls.families.get(family)
        if number is None:
            return self._task.inputs(problem, family, seed, torch_device)
        return self._recorded(problem, number, torch_device)

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        number = self._calls.names.get(name)
        if number is None:
            return self._task.timing_tensors(problem, name, seed, torch_device)
        return self._recorded(problem, number, torch_device)

    def _recorded(self, problem: Problem, number: int, torch_device: str) -> dict[str, Tensor]:
        """A copy of what the call has; for a share of the problem, of a part of it."""
        if (number, torch_device) not in self._kept:
            found = next(c for c in self._read() if c.number == number)
            tensors = read_tensors(Path(self._calls.path), found)
            self._kept[number, torch_device] = {name: x.to(torch_device) for name, x in tensors.items()}
        whole = self._kept[number, torch_device]
        read = {b.name: b for b in self._task.buffers(problem) if b.read}
        kept = {n: _part(whole[n], b.shape).clone() for n, b in read.items() if n not in self._task.packings}
        return self._task.packed(problem, kept)

    def _read(self) -> list[RecordedCall]:
        """The calls of the file, which must be as it was when it was chosen."""
        return read_calls(Path(self._calls.located().path))


def _part(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """So much of a tensor: the first along each dimension; where one has grown (fewer heads, all of one
    batch), the first of the pieces that agree with `shape` in their last dimensions."""
    if all(size <= length for size, length in zip(shape, x.shape, strict=True)):
        for dimension, size in enumerate(shape):
            x = x.narrow(dimension, 0, size)
        return x.contiguous()
    return x.reshape(-1)[: math.prod(shape)].reshape(shape)
