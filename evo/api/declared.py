"""What `evo.tune` was told of a kernel becomes the sizes, tensors and arguments of a task and a template.

The kernel's own signature says the order of its arguments, their types, and what it only reads. Sizes are
whole numbers that dimensions of tensors have: the gate tries others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.api.arguments import dtype_of
from evo.api.kernel_task import called
from evo.dtype import dtype_named
from evo.errors import UsageError, kind_of
from evo.importers.source import WHOLE, KernelArgument, KernelSource, read_source
from evo.task.tensors import DeclaredTensor
from evo.template import Cast

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Declared:
    """Tensors by name, in the kernel's order; sizes; numbers that are no sizes; the kernel's arguments.
    `examples`: the tensors that came with it, on the CPU. `fixed`: sizes that the kernel has in its code."""

    sizes: dict[str, int]
    tensors: dict[str, DeclaredTensor]
    numbers: dict[str, float]
    args: list[Any] | None
    examples: dict[str, Tensor]
    fixed: tuple[str, ...]


def declared(
    path: Path,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    reference: Callable[..., Any],
    args: Sequence[Any] | None,
) -> Declared:
    """What is known of the kernel in `path`. UsageError where it and `inputs` do not fit each other."""
    arguments = _arguments(path, inputs, args)
    made = {name: value for name, value in inputs.items() if isinstance(value, DeclaredTensor)}
    numbers = {name: value for name, value in inputs.items() if isinstance(value, (int, float))}
    examples = {
        name: _example(name, value) for name, value in inputs.items() if name not in {**made, **numbers}
    }
    shapes = {name: tuple(map(int, one.shape)) for name, one in examples.items()}
    found = _sizes(arguments, made, shapes, {**sizes, **numbers})
    others = {name: value for name, value in numbers.items() if name not in found}
    if not made:
        results = _results(arguments, examples, reference, {**found, **others})
        shapes |= {name: tuple(map(int, one.shape)) for name, one in results.items()}
    fixed = () if found else tuple(f"size_{side}" for side in _sides(shapes))
    found = found or {f"size_{side}": side for side in _sides(shapes)}
    tensors = {}
    for argument in arguments:
        if not argument.role:
            continue
        name = argument.name
        if name in made:
            tensors[name] = _typed(made[name], argument)
        elif name in shapes:
            tensors[name] = _declared(argument, shapes[name], found, examples.get(name))
        else:
            raise UsageError(f"nothing says the shape of {name}", f'inputs={{"{name}": Out("n")}}')
    given = list(args) if args is not None else _given(arguments, found, others)
    return Declared(found, tensors, others, given, examples, fixed)


def _arguments(
    path: Path, inputs: Mapping[str, Any], args: Sequence[Any] | None
) -> tuple[KernelArgument, ...]:
    """The kernel's arguments: by its signature; where `args` says their order, by `inputs`."""
    try:
        source = read_source(path)
    except UsageError as error:
        if args is None:
            hint = 'args=["x", "y", "n"] says the order, and In, Out, InOut what each tensor is'
            raise UsageError(error.message, hint) from error
        return tuple(
            KernelArgument(name, value.dtype or "", value.role)
            if isinstance(value, DeclaredTensor)
            else KernelArgument(name, dtype_of(_example(name, value)), "in")
            for name, value in inputs.items()
            if not isinstance(value, (int, float))
        )
    arguments = (*source.arguments, *_constants(source, inputs))
    known = [argument.name for argument in arguments]
    if args is None and (unknown := [name for name in inputs if name not in known]):
        raise UsageError(f"the kernel has no argument {unknown[0]}", f"arguments: {', '.join(known)}")
    return arguments


def _constants(source: KernelSource, inputs: Mapping[str, Any]) -> Iterator[KernelArgument]:
    """What fills the kernel's constant memory: inputs with the names of variables, or that name one."""
    named = {one.constant: name for name, one in inputs.items() if isinstance(one, DeclaredTensor)}
    variables = {name: name for name in inputs} | {held: name for held, name in named.items() if held}
    for one in source.constants:
        if one.name not in variables:
            hint = f'inputs={{"{one.name}": …}}'
            raise UsageError(f"nothing fills the kernel's __constant__ {one.name}", hint)
        yield replace(one, name=variables[one.name])


def _example(name: str, value: Any) -> Tensor:
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value.copy())
    if not isinstance(value, torch.Tensor):
        hint = "a tensor, an array, a number, In(...), Out(...) or InOut(...)"
        raise UsageError(f"input {name} is {kind_of(value)}", hint)
    if not value.dim():
        raise UsageError(f"input {name} has no dimension", f"a number: {name}={value.item()}")
    return value.detach().cpu().contiguous()


def _sizes(
    arguments: Sequence[KernelArgument],
    made: Mapping[str, DeclaredTensor],
    shapes: Mapping[str, tuple[int, ...]],
    numbers: Mapping[str, float],
) -> dict[str, int]:
    """The sizes, in the kernel's order: whole numbers that are a side of a tensor, by name or by value."""
    named = {d for one in made.values() for d in one.dimensions if isinstance(d, str)}
    sides = _sides(shapes)
    wanted = [a.name for a in arguments if not a.role and a.dtype in WHOLE]
    missing = [name for name in wanted if name not in numbers]
    told = dict(numbers)
    if len(missing) == 1 and len(sides) == 1:
        told[missing[0]] = sides[0]
    if lost := [name for name in (*missing, *sorted(named)) if name not in told]:
        raise UsageError(f"nothing says how large {lost[0]} is", _how_large(lost, wanted, told, shapes))
    order = dict.fromkeys([*wanted, *told])
    return {n: int(told[n]) for n in order if n in named or (n in told and told[n] in sides)}


def _how_large(
    lost: Sequence[str],
    wanted: Sequence[str],
    told: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]],
) -> str:
    """How to say what the sizes `lost` are: by the sides of the tensor that has most of them, if there is
    one. `wanted`: all sizes that the kernel takes."""
    name, shape = max(shapes.items(), key=lambda one: len(one[1]), default=("", ()))
    if not shape:
        return f'sizes={{"{lost[0]}": 1_000_000}}, or {lost[0]}=… among the inputs'
    free = [side for side in shape if side not in told.values()] or shape
    sizes = ", ".join(f'"{size}": {side}' for size, side in zip(lost, free, strict=False))
    named = [f'"{size}"' for size in wanted][: len(shape)]
    sides = ", ".join([*named, *["…"] * (len(named) < len(shape))])
    return f'sizes={{{sizes}}}, if {name} has them; where sides are equal, declare it: "{name}": In({sides})'


def _sides(shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    return list(dict.fromkeys(side for shape in shapes.values() for side in shape))


def _results(
    arguments: Sequence[KernelArgument],
    examples: Mapping[str, Tensor],
    reference: Callable[..., Any],
    numbers: Mapping[str, Any],
) -> dict[str, Tensor]:
    """What the reference gives for the examples, by the names of the buffers that the kernel writes."""
    import torch

    written = [argument.name for argument in arguments if argument.role in ("out", "inout")]
    read = [argument.name for argument in arguments if argument.role in ("in", "inout")]
    if missing := [name for name in read if name not in examples]:
        raise UsageError(f"input {missing[0]} is missing", f"inputs: {', '.join(read)}")
    if not written:
        raise UsageError("the kernel writes nothing", "a pointer that is not const")
    inputs = {name: examples[name].clone() for name in read}
    found = called(reference, inputs, numbers)
    if not isinstance(found, Mapping):
        several = found if isinstance(found, (tuple, list)) else (found,)
        if len(several) != len(written):
            hint = f"one for each of {', '.join(written)}"
            raise UsageError(f"the reference gives {len(several)} tensors", hint)
        found = dict(zip(written, several, strict=True))
    if set(found) != set(written):
        hint = f"outputs: {', '.join(written)}"
        raise UsageError(f"the reference gives {', '.join(map(str, found))}", hint)
    for name, one in found.items():
        if not isinstance(one, torch.Tensor):
            what = "nothing" if one is None else f"{name} as {kind_of(one)}"
            raise UsageError(f"the reference gives {what}", f"a tensor for each of {', '.join(written)}")
    return {name: found[name] for name in written}


def _declared(
    argument: KernelArgument, shape: tuple[int, ...], sizes: Mapping[str, int], example: Tensor | None
) -> DeclaredTensor:
    """The tensor of that shape, its sides named where they are sizes. Whole numbers keep the range that the
    example has."""
    dimensions: list[str | int] = []
    for side in shape:
        names = [name for name, size in sizes.items() if size == side]
        if len(names) > 1:
            hint = f'inputs={{"{argument.name}": In("{names[0]}", …)}} with sizes=…, or sizes that differ'
            raise UsageError(f"{argument.name} has a side of {side}: {' or '.join(names)}", hint)
        dimensions.append(names[0] if names else side)
    between = None
    if example is not None:
        if dtype_of(example) != argument.dtype:
            wanted = dtype_named(argument.dtype).torch
            message = f"{argument.name} is of {example.dtype}, the kernel's argument of {argument.dtype}"
            raise UsageError(message, f"{argument.name}.to({wanted})")
        if dtype_named(argument.dtype).kind in ("int", "uint") and example.numel():
            between = (int(example.min()), int(example.max()) + 1)
    constant = argument.constant or None
    return DeclaredTensor(_role(argument), tuple(dimensions), argument.dtype, between, constant=constant)


def _typed(tensor: DeclaredTensor, argument: KernelArgument) -> DeclaredTensor:
    """A tensor that was declared, with the type that the kernel's argument has."""
    if tensor.dtype and argument.dtype and dtype_named(tensor.dtype) != dtype_named(argument.dtype):
        raise UsageError(
            f"{argument.name} is of {tensor.dtype}, the kernel's of {argument.dtype}", "one type"
        )
    constant = tensor.constant or argument.constant or None
    return replace(tensor, dtype=argument.dtype or tensor.dtype, constant=constant)


def _role(argument: KernelArgument) -> Any:
    return argument.role


def _given(
    arguments: Sequence[KernelArgument], sizes: Mapping[str, int], numbers: Mapping[str, float]
) -> list[Any]:
    """The arguments of a launch, in the kernel's order."""
    found: list[Any] = []
    for argument in arguments:
        name = argument.name
        if argument.constant:
            continue
        if argument.role:
            found.append(name)
        elif name in sizes:
            found.append(Cast(name, argument.dtype))
        elif name in numbers:
            found.append(Cast(numbers[name], argument.dtype))
        else:
            raise UsageError(f"nothing says what {name} is", f'inputs={{"{name}": 2.0}}')
    return found
