"""A KernelBench problem as a task and a first template. The file runs: it is Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from evo.dtype import DTYPES
from evo.errors import EvoError, UsageError
from evo.importers import elementwise
from evo.importers.made import Made, check_finite, check_place, tuple_text
from evo.importers.model import Shapes, Sizes, loaded, shapes_of, whole_numbers
from evo.importers.stub import TYPES, StubBuffer, write_stub

MODEL = "model.py"
"""The problem's file in the task's folder."""
LICENCE = "KernelBench is under the MIT licence (Copyright 2023 Anne Ouyang, Simon Guo, Azalia Mirhoseini)"
ENDS = "(0, 1)"
"""Between what torch.rand draws, as most problems do."""
_DRAWN = ("rand", "randn", "randint", "rand_like", "randn_like")
_SAME = ("to", "float", "long", "int", "bool", "half", "double", "requires_grad_", "contiguous")


def import_problem(file: Path, folder: Path, name: str, given: Mapping[str, int | float | str]) -> Made:
    """Writes `folder/name` from a problem. UsageError where the file is no problem, or where its reference
    has no value for evo's inputs nor for its own."""
    place = check_place(name, folder)
    try:
        problem = _read(file.resolve(), given)
        place.mkdir(parents=True)
        return _written(file, place, problem, given)
    except EvoError:
        shutil.rmtree(place, ignore_errors=True)
        raise


@dataclass(frozen=True)
class _Problem:
    """What was found out about a file."""

    sizes: dict[str, int]
    fixed: tuple[str, ...]
    dimensions: dict[str, tuple[str, ...]]
    """Of each tensor: `"size"`, a number, or a function."""
    shapes: Shapes
    between: dict[str, str]
    structured: tuple[str, ...]
    """Inputs that the file makes by more than drawing."""


def _read(file: Path, given: Mapping[str, Any]) -> _Problem:
    found = {name: int(given.get(name, value)) for name, value in whole_numbers(file).items()}
    own = tuple(found.items())
    base = shapes_of(file, own)
    others = {name: _moved(file, own, name) for name in found}
    sized = {n: m for n, m in others.items() if m and _sides(m[1], ("inputs", "weights")) != _sides(base)}
    sizes = {name: found[name] for name in sized}
    if not sizes:
        sizes, sized = {"count": 1}, {}
    outer = {n for n, m in sized.items() if m and _sides(m[1], ("inputs",)) != _sides(base, ("inputs",))}
    fixed = tuple(n for n, m in sized.items() if m and (m[0] != found[n] + 1 or n not in outer))
    drawn = _drawing(file, own)
    ends = {n: _drawing(file, _with(own, n, m[0])) for n, m in sized.items() if m}
    return _Problem(
        sizes,
        fixed,
        {name: _dimensions(name, base, sizes, sized) for name in _all(base)},
        base,
        {name: _between(name, drawn, sizes, ends) for name in base.inputs if drawn.get(name)},
        tuple(name for name in base.inputs if name not in drawn),
    )


def _moved(file: Path, own: Sizes, name: str) -> tuple[int, Shapes] | None:
    """The problem with another value of one number: one more, or twice as many; None where the model takes
    neither."""
    value = dict(own)[name]
    for other in (value + 1, 2 * value):
        try:
            return other, shapes_of(file, _with(own, name, other))
        except EvoError:
            continue
    return None


def _with(own: Sizes, name: str, value: int) -> Sizes:
    return tuple({**dict(own), name: value}.items())


def _all(shapes: Shapes) -> dict[str, Tensor]:
    return {**shapes.inputs, **shapes.weights, **shapes.outputs}


def _sides(shapes: Shapes, kinds: Sequence[str] = ("inputs", "weights")) -> list[tuple[int, ...]]:
    return [tuple(x.shape) for kind in kinds for x in getattr(shapes, kind).values()]


def _dimensions(
    name: str, base: Shapes, sizes: Mapping[str, int], sized: Mapping[str, tuple[int, Shapes] | None]
) -> tuple[str, ...]:
    """Each side of a tensor: the size that it is, a number, or a function of the problem."""
    sides = []
    for at, side in enumerate(_all(base)[name].shape):
        moved = {n: _all(m[1])[name].shape[at] for n, m in sized.items() if m}
        depends = [n for n, other in moved.items() if other != side]
        is_size = len(depends) == 1 and side == sizes[depends[0]]
        if is_size and moved[depends[0]] == sized[depends[0]][0]:  # type: ignore[index]
            sides.append(f'"{depends[0]}"')
        else:
            sides.append(f'lambda p: Kernel.side(p, "{name}", {at})' if depends else str(side))
    return tuple(sides) or ("1",)


class _Drawing(TorchFunctionMode):  # type: ignore[misc]
    """Notes which tensors are drawn, and between what."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[int, tuple[int, int] | None] = {}
        self.kept: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        called = getattr(func, "__name__", "")
        if isinstance(found, Tensor):
            self.kept.append(found)  # an id is that of one tensor only as long as it lives
            if called in _DRAWN:
                whole = [arg for arg in args if isinstance(arg, int)] if called == "randint" else []
                self.ends[id(found)] = (whole[0] if len(whole) > 1 else 0, whole[-1]) if whole else None
            elif called in _SAME and args and id(args[0]) in self.ends:
                self.ends[id(found)] = self.ends[id(args[0])]
        return found


def _drawing(file: Path, own: Sizes) -> dict[str, tuple[int, int] | None]:
    """The inputs that are drawn and nothing else, with the ends of whole numbers."""
    mode = _Drawing()
    with torch.device("meta"), mode:
        made = list(loaded(file, own).get_inputs())
    names = [*shapes_of(file, own).inputs]
    tensors = [x for x in made if isinstance(x, Tensor)]
    return {n: mode.ends[id(x)] for n, x in zip(names, tensors, strict=True) if id(x) in mode.ends}


def _between(
    name: str, drawn: Mapping[str, Any], sizes: Mapping[str, int], ends: Mapping[str, Mapping[str, Any]]
) -> str:
    """The range of whole numbers, by sizes where it moves with them."""
    low, high = drawn[name]
    by_size = [n for n in sizes if ends.get(n, {}).get(name, (low, high))[1] != high]
    return f'({low}, "{by_size[0]}")' if by_size and sizes[by_size[0]] == high else f"({low}, {high})"


# ------------------------------------------------------------------------------------------- what is written


def _written(file: Path, place: Path, problem: _Problem, given: Mapping[str, Any]) -> Made:
    shutil.copyfile(file, place / MODEL)
    name, origin = place.name, f"KernelBench's {file.name}"
    buffers = [StubBuffer(n, _dtype(x), n in problem.shapes.outputs) for n, x in _all(problem.shapes).items()]
    sizes = list(problem.sizes)
    formula = elementwise.formula(file.resolve(), problem.shapes, problem.sizes, problem.dimensions, given)
    output = problem.dimensions[next(iter(problem.shapes.outputs))]
    sides = [side.strip('"') for side in output if side.strip('"') in sizes]
    missing = write_stub(place, buffers, sizes, origin, sides, formula)
    families = _serving(place, problem, origin, bool(formula))
    files = tuple(place / each for each in ("task.py", MODEL, f"{name}.cu", f"{name}.py"))
    notes = (LICENCE, *([families] if families else []))
    return Made(name, files, missing, notes)


def _serving(place: Path, problem: _Problem, origin: str, alone: bool) -> str:
    """Writes the task with all families, or with the file's inputs alone where the reference has no value for
    others; says which. `alone`: each element is computed alone. UsageError where it has none at all."""
    only = f"inputs are the file's own: it makes {', '.join(problem.structured)} by more than drawing"
    last = "inputs are the file's own: of others the result is not finite"
    tried = [("", "", ""), ("", ENDS, f"inputs are between {ENDS}: of others the result is not finite")]
    tried = [("ONLY_GIVEN", "", only)] if problem.structured else [*tried, ("ONLY_GIVEN", "", last)]
    error: EvoError | None = None
    for families, ends, note in tried:
        text = _task_text(place.name, problem, origin, families, ends, alone)
        (place / "task.py").write_text(text)
        try:
            check_finite(place)
        except EvoError as caught:
            error = caught
        else:
            return note
    assert error is not None
    raise UsageError(f"{origin} cannot be taken: {error.message}", error.hint)


def _task_text(name: str, problem: _Problem, origin: str, families: str, ends: str, alone: bool) -> str:
    lines = []
    shapes = problem.shapes
    for tensor, x in _all(shapes).items():
        kind = "Out" if tensor in shapes.outputs else "In"
        own = "" if _dtype(x) == "fp32" else f', dtype="{_dtype(x)}"'
        if tensor in problem.between:
            own += f", between={problem.between[tensor]}"
        elif ends and tensor in shapes.inputs and x.dtype == torch.float32:
            own += f", between={ends}"
        lines.append(f'        "{tensor}": {kind}({", ".join(problem.dimensions[tensor])}{own}),')
    sizes = ", ".join(f'"{size}": {value}' for size, value in problem.sizes.items())
    fixed = f"    fixed = {tuple_text(problem.fixed)}\n" if problem.fixed else ""
    named = tuple_text(problem.sizes)
    summed = "" if alone else f"    summed = {named}  # leave out sizes that no kernel adds up along\n"
    chosen = f"    families = {families}\n" if families else ""
    imported = f"{families}, ModelTask" if families else "ModelTask"
    return f'''"""{name}: from {origin}, which is {MODEL} here.

{LICENCE}.
"""

from pathlib import Path

from evo import In, Out
from evo.importers.model import {imported}


class Kernel(ModelTask):
    name, sizes, dtypes = "{name}", {{{sizes}}}, ("fp32",)
    file = Path(__file__).with_name("{MODEL}")
{fixed}{chosen}{summed}    tensors = {{
{chr(10).join(lines)}
    }}


TASK = Kernel()
'''


def _dtype(tensor: Tensor) -> str:
    wanted = str(tensor.dtype).removeprefix("torch.")
    found = next((name for name, dtype in DTYPES.items() if dtype.torch_name == wanted), None)
    if found is None or found not in TYPES:
        raise UsageError(f"a tensor is of {wanted}", f"one of {', '.join(TYPES)}")
    return found


def task_word(file: Path) -> str:
    """`19_ReLU.py` is relu."""
    return re.sub(r"^\d+_", "", file.stem)
