"""Which problem a recorded call is of: the shapes of its tensors say the sizes, their type the storage type.

What a task's buffers are made of is found by asking it for the buffers of two problems whose sizes are all
different: a dimension that is a size in both is that size. So a task need not say it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evo.calls.file import RecordedCall
from evo.errors import EvoError, UsageError
from evo.task import BufferSpec, Task
from evo.trial import Problem, Value

_PRIMES = (
    (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049),
    (2003, 2011, 2017, 2027, 2029, 2039, 2053, 2063),
)
"""Sizes that are no tile's and not each other's."""


def problem_of(
    task: Task,
    call: RecordedCall,
    flags: Mapping[str, object] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Problem:
    """The problem whose inputs the call has. `flags` and `sizes`: what a person said, for what neither shapes
    nor metadata tell. UsageError where the call is none of the task, with what is wrong with it."""
    chosen = {name: flag.default for name, flag in task.flags.items()}
    told = {name: text for name, text in call.said.items() if name in task.flags}
    chosen |= {name: task.flags[name].parse(name, value) for name, value in {**(flags or {}), **told}.items()}
    example = task.example.replace(**chosen)
    read = {buffer.name: buffer for buffer in task.buffers(example) if buffer.read}
    _refuse_names(task, call, read)
    found = _sizes(task, call, chosen, sizes or {})
    shape = ",".join(str(found[name]) for name in task.sizes)
    problem = task.problem(shape, _dtype(task, call, found, chosen), **chosen)
    for buffer in task.buffers(problem):
        entry = call.entries.get(buffer.name)
        if buffer.read and entry is not None and entry.shape != buffer.shape:
            raise UsageError(
                f"{buffer.name} is {_by(entry.shape)}, and of {problem.key} it is {_by(buffer.shape)}"
            )
    return problem


def _refuse_names(task: Task, call: RecordedCall, read: Mapping[str, BufferSpec]) -> None:
    """What is packed may be missing: it is made of the others."""
    reads = f"{task.name} reads {', '.join(name for name in read if name not in task.packings)}"
    for name in read:
        if name not in call.entries and name not in task.packings:
            raise UsageError(f"{name} is missing", reads)
    for name in call.entries:
        if name not in read:
            raise UsageError(f"{task.name} reads no {name}", reads)


def _sizes(
    task: Task, call: RecordedCall, flags: Mapping[str, Value], said: Mapping[str, int]
) -> dict[str, int]:
    """Every size of the problem, each by the first tensor that has it."""
    found: dict[str, tuple[int, str]] = {}
    for name, dimensions in dimensions_of(task, flags).items():
        if name not in call.entries:
            continue  # an output
        shape = call.entries[name].shape
        if len(shape) != len(dimensions):
            wanted = ", ".join(d if isinstance(d, str) else "…" for d in dimensions)
            raise UsageError(
                f"{name} has {len(shape)} dimensions ({_by(shape)}), not {len(dimensions)}: {wanted}"
            )
        for size, length in zip(dimensions, shape, strict=True):
            if length < 1:
                raise UsageError(f"{name} is empty: {_by(shape)}")
            if not isinstance(size, str):
                continue
            known, where = found.setdefault(size, (length, name))
            if known != length:
                raise UsageError(f"{size} is {known} by {where} and {length} by {name}")
    untold = [size for size in task.sizes if size not in found and size not in said]
    if untold:
        raise UsageError(f"no tensor's shape says what {untold[0]} is", "say it: --shape")
    return {size: found[size][0] if size in found else said[size] for size in task.sizes}


def dimensions_of(task: Task, flags: Mapping[str, Value]) -> dict[str, tuple[str | int | None, ...]]:
    """Which size each dimension of each buffer is, or which whole number; None: it is made of sizes."""
    asked = [dict(zip(task.sizes, _PRIMES[0], strict=False)), dict(zip(task.sizes, _PRIMES[1], strict=False))]
    try:
        first, second = (task.buffers(Problem(task.name, s, task.dtypes[0], flags)) for s in asked)
    except EvoError:
        raise
    except Exception as error:
        hint = "its buffers must be known for any sizes"
        raise UsageError(f"task {task.name} does not say the shapes of its buffers: {error}", hint) from error
    named = [{length: size for size, length in sizes.items()} for sizes in asked]
    return {
        one.name: tuple(
            size if (size := named[0].get(a, a)) == named[1].get(b, b) else None
            for a, b in zip(one.shape, other.shape, strict=True)
        )
        for one, other in zip(first, second, strict=True)
    }


def _dtype(task: Task, call: RecordedCall, sizes: Mapping[str, int], flags: Mapping[str, Value]) -> str:
    """The storage type of which all tensors of the call are."""
    wanted: dict[str, list[str]] = {}
    for dtype in task.dtypes:
        every = task.buffers(Problem(task.name, sizes, dtype, flags))
        buffers = [b for b in every if b.read and b.name in call.entries]
        if all(call.entries[b.name].dtype == b.dtype for b in buffers):
            return dtype
        for buffer in buffers:
            wanted.setdefault(buffer.name, []).append(buffer.dtype)
    for name, types in wanted.items():
        if (own := call.entries[name].dtype) not in types:
            allowed = " or ".join(dict.fromkeys(types))
            raise UsageError(f"{name} is {own}, and {task.name} takes {allowed}", "convert it: x.to(dtype)")
    kinds = ", ".join(f"{name} is {call.entries[name].dtype}" for name in wanted)
    raise UsageError(f"the tensors are of different types: {kinds}", f"{task.name}: {', '.join(task.dtypes)}")


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
