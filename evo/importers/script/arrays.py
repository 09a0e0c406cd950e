"""What numpy's and Python's functions give to a script that is read: shapes and types, not contents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evo.importers.script.values import (
    Array,
    Library,
    Number,
    Unknown,
    elements,
    plain,
    product,
    unknown_part,
)

DTYPES = {
    "float16": "fp16", "half": "fp16", "float32": "fp32", "single": "fp32", "float64": "fp64",
    "double": "fp64", "float": "fp64", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
    "int32": "i32", "intc": "i32", "uint32": "u32", "int64": "i64", "int": "i64", "uint64": "u64",
    "bool": "bool", "bool_": "bool",
}  # fmt: skip
"""numpy's names of types, and evo's."""
_ELEMENTWISE = (
    "exp", "log", "log2", "sqrt", "abs", "sin", "cos", "tan", "tanh", "floor", "ceil", "square", "sign",
)  # fmt: skip
"""Functions that numpy and torch call alike."""
_RENAMED = {"absolute": "abs", "fabs": "abs", "amax": "max", "amin": "min", "power": "pow"}
_REDUCED = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}
_DRAWN = ("rand", "randn", "random", "random_sample", "standard_normal", "normal", "uniform", "sample")
_WHOLE = ("randint", "integers", "random_integers")
_numbers = itertools.count()
Arguments = Sequence[Any]
Options = Mapping[str, Any]


def drawn(shape: Sequence[Number], dtype: str, **more: Any) -> Array:
    """An array that is an input, or the first content of an output: no other has its number."""
    return Array(tuple(shape), dtype, f"@{next(_numbers)}@", **more)


def dtype_of(value: Any) -> str | None:
    """evo's name of a type that a script names; None for what is no type."""
    name = value.path.rsplit(".", 1)[-1] if isinstance(value, Library) else value
    return DTYPES.get(name) if isinstance(name, str) else None


def call(  # noqa: PLR0911 - one for each kind of function
    path: str, args: Arguments, options: Options, where: str
) -> Any:
    """What a function of a library gives."""
    name = _RENAMED.get(path.rsplit(".", 1)[-1], path.rsplit(".", 1)[-1])
    library = path.split(".", maxsplit=1)[0]
    if library in ("numpy", "math", "builtins", "collections") and name in _SIMPLE and _numeric(args):
        return _SIMPLE[name](args)
    if library != "numpy":
        return Unknown(f"a call of {path} ({where})")
    if name in DTYPES:
        return scalar(args[0] if args else Number(0), DTYPES[name], where)
    if ".random." in path and name in _DRAWN + _WHOLE:
        return _random(name, args, options, where)
    if name in ("default_rng", "RandomState"):
        return Library("numpy.random")
    if name == "seed":
        return None
    if name in _MAKERS:
        return _MAKERS[name](args, options, where)
    if args and isinstance(args[0], Array):
        return of_array(name, args[0], args[1:], options, where)
    return Unknown(f"a call of {path} ({where})")


def of_array(  # noqa: PLR0911 - one for each kind of method
    name: str, array: Array, args: Arguments, options: Options, where: str
) -> Any:
    """What a method of an array gives, or numpy's function of the same name."""
    name = _RENAMED.get(name, name)
    if name == "astype":
        dtype = dtype_of(args[0] if args else options.get("dtype"))
        return _typed(array, dtype) if dtype else Unknown(f"a type that is not known ({where})")
    if name in ("copy", "ascontiguousarray", "asarray", "array"):
        return array if name != "copy" else drawn(array.shape, array.dtype)
    if name in _ELEMENTWISE and not args:
        return Array(array.shape, array.dtype, f"torch.{name}({array.code})", sums=array.sums)
    if name in ("dot", "matmul"):
        return product(array, args[0] if args else None, where)
    if name in ("ravel", "flatten"):
        return _viewed(array, (elements(array),), f"{array.code}.flatten()")
    if name == "reshape":
        return _reshaped(array, args, where)
    if name == "transpose" and not args and len(array.shape) == 2:
        return Array(array.shape[::-1], array.dtype, f"{array.code}.T", sums=array.sums)
    if name == "cumsum" and len(array.shape) == 1:
        return Array(array.shape, array.dtype, f"{array.code}.cumsum(0)", sums=(*array.sums, *array.shape))
    if name in _REDUCED and not (args and name in ("max", "min") and isinstance(args[0], Array)):
        return _reduced(name, array, args, options, where)
    return Unknown(f"a call of numpy's {name} ({where})")


def scalar(value: Any, dtype: str, where: str) -> Any:
    """A number of a type: np.float32(0.1) is the nearest one that the type has."""
    if isinstance(value, Unknown):
        return value
    if not isinstance(value, Number):
        return Unknown(f"a number of something else ({where})")
    if dtype.startswith("fp"):
        kind: Any = {"fp16": np.float16, "fp32": np.float32}.get(dtype, np.float64)
        exact = float(kind(value.value))
        return Number(exact, value.text if exact == value.value else "", dtype)
    return Number(int(value.value), value.text, dtype)


def _numeric(args: Arguments) -> bool:
    flat = _flat(args)
    return bool(flat) and all(isinstance(one, Number) for one in flat)


def _flat(args: Arguments) -> list[Number]:
    return [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else [arg])]


def _prod(args: Arguments) -> Number:
    sides = _flat(args)
    text = " * ".join(side.code for side in sides)
    return Number(math.prod(side.value for side in sides), f"({text})" if any(s.text for s in sides) else "")


def _extreme(name: str, choose: Callable[..., Any]) -> Callable[[Arguments], Number]:
    """`max` and `min`: of numbers with a history an expression, of others a number."""

    def extreme(args: Arguments) -> Number:
        values = _flat(args)
        texts = ", ".join(dict.fromkeys(value.code for value in values))
        named = any(value.text for value in values) and len(values) > 1
        found = choose(value.value for value in values)
        return Number(found, f"{name}({texts})" if named else values[0].text if len(values) == 1 else "")

    return extreme


def _rounded(name: str, compute: Callable[[float], float]) -> Callable[[Arguments], Number]:
    def rounded(args: Arguments) -> Number:
        (value, *_) = _flat(args)
        return Number(int(compute(value.value)), f"{name}({value.text})" if value.text else "")

    return rounded


_SIMPLE: dict[str, Callable[[Arguments], Any]] = {
    "prod": _prod,
    "max": _extreme("max", max),
    "min": _extreme("min", min),
    "ceil": _rounded("ceil", math.ceil),
    "floor": _rounded("floor", math.floor),
    "int": lambda args: Number(int(args[0].value), args[0].text and f"int({args[0].text})"),
    "float": lambda args: Number(float(args[0].value), args[0].text),
    "round": lambda args: Number(round(args[0].value)),
    "abs": lambda args: Number(abs(args[0].value)),
    "sum": lambda args: Number(sum(one.value for one in _flat(args))),
    "sqrt": lambda args: Number(math.sqrt(args[0].value)) if args[0].value >= 0 else Unknown("a root"),
    "log2": lambda args: Number(math.log2(args[0].value)) if args[0].value > 0 else Unknown("a logarithm"),
}


def _shape_of(value: Any) -> list[Any] | None:
    """The sides that a value names; None where they are not known."""
    sides = list(value) if isinstance(value, (list, tuple)) else [value]
    return sides if sides and all(isinstance(side, Number) for side in sides) else None


def _filled(zeros: bool) -> Callable[[Arguments, Options, str], Any]:
    def filled(args: Arguments, options: Options, where: str) -> Any:
        wanted = args[0] if args else options.get("shape")
        shape = _shape_of(wanted)
        if shape is None:
            return wanted if isinstance(wanted, Unknown) else Unknown(f"a shape that is not known ({where})")
        given = options.get("dtype", args[1] if len(args) > 1 else None)
        return drawn(shape, dtype_of(given) or "fp64", zeros=zeros)

    return filled


def _full(args: Arguments, options: Options, where: str) -> Any:
    return _filled(zeros=False)([*args[:1], *args[2:3]], options, where)


def _alike(zeros: bool) -> Callable[[Arguments, Options, str], Any]:
    def alike(args: Arguments, options: Options, where: str) -> Any:
        if not args or not isinstance(args[0], Array):
            return args[0] if args else Unknown(f"an array that is not known ({where})")
        return drawn(args[0].shape, dtype_of(options.get("dtype")) or args[0].dtype, zeros=zeros)

    return alike


def _counted(args: Arguments, options: Options, where: str) -> Any:
    """arange and linspace: an array of so many elements."""
    count = args[-1] if len(args) in (1, 3) else None
    if not isinstance(count, Number):
        return Unknown(f"an array that is not known ({where})")
    return drawn([count], dtype_of(options.get("dtype")) or "i64")


def _listed(args: Arguments, options: Options, where: str) -> Any:
    """np.array([...]): its shape alone counts."""
    value = args[0] if args else None
    if isinstance(value, Array):
        return value
    if not isinstance(value, (list, tuple)) or unknown_part(value):
        return value if isinstance(value, Unknown) else Unknown(f"an array that is not known ({where})")
    try:
        shape = np.shape(plain(value))
        made = np.asarray(plain(value))
    except ValueError:
        return Unknown(f"an array that is not known ({where})")
    natural = {"f": "fp64", "i": "i64", "b": "bool"}.get(made.dtype.kind)
    dtype = dtype_of(options.get("dtype")) or natural
    return drawn([Number(side) for side in shape], dtype) if dtype else Unknown(f"an array ({where})")


_MAKERS: dict[str, Callable[[Arguments, Options, str], Any]] = {
    "zeros": _filled(zeros=True),
    "empty": _filled(zeros=True),
    "ones": _filled(zeros=False),
    "full": _full,
    "zeros_like": _alike(zeros=True),
    "empty_like": _alike(zeros=True),
    "ones_like": _alike(zeros=False),
    "arange": _counted,
    "linspace": _counted,
    "array": _listed,
    "asarray": _listed,
}


def _random(name: str, args: Arguments, options: Options, where: str) -> Any:
    dtype = dtype_of(options.get("dtype")) or ("i64" if name in _WHOLE else "fp64")
    ends: tuple[Number, Number] | None = None
    if name in ("rand", "randn"):
        shape = _shape_of(list(args))
    else:
        first = {"normal": 2, "uniform": 2, "randint": 2, "integers": 2, "random_integers": 2}.get(name, 0)
        shape = _shape_of(options.get("size", args[first] if len(args) > first else None))
        numbers = [arg for arg in args[:first] if isinstance(arg, Number)]
        high = options.get("high")
        numbers += [high] if isinstance(high, Number) else []
        if name in _WHOLE and numbers:
            ends = (numbers[0], numbers[1]) if len(numbers) > 1 else (Number(0), numbers[0])
    if shape is None:
        unknown = next((arg for arg in [*args, options.get("size")] if isinstance(arg, Unknown)), None)
        return unknown or Unknown(f"a shape that is not known ({where})")
    return drawn(shape, dtype, between=ends)


def _typed(array: Array, dtype: str) -> Array:
    return replace(array, dtype=dtype, seen=array.seen and replace(array.seen, dtype=dtype))


def _reshaped(array: Array, args: Arguments, where: str) -> Any:
    shape = _shape_of(args[0] if len(args) == 1 else list(args))
    if shape is None:
        return Unknown(f"a shape that is not known ({where})")
    if any(side.value == -1 for side in shape):
        others = math.prod(int(side.value) for side in shape if side.value != -1)
        count = elements(array)
        rest = Number(int(count.value) // others, f"({count.code} // {others})" if others > 1 else count.text)
        shape = [rest if side.value == -1 else side for side in shape]
    sides = ", ".join(f"‹{side.code}›" for side in shape)
    return _viewed(array, tuple(shape), f"{array.code}.reshape({sides})")


def _viewed(array: Array, shape: tuple[Number, ...], code: str) -> Array:
    """The same elements in another shape."""
    seen = array.seen or (array if array.code.startswith("@") else None)
    return replace(array, shape=shape, code=code, seen=seen)


def _reduced(name: str, array: Array, args: Arguments, options: Options, where: str) -> Any:
    axis = options.get("axis", args[0] if args else None)
    if axis is None:
        sums = (*array.sums, *array.shape)
        return Array((), array.dtype, f"{array.code}.{_REDUCED[name]}()", sums=sums)
    if not isinstance(axis, Number) or not -len(array.shape) <= axis.value < len(array.shape):
        return Unknown(f"an axis that is not known ({where})")
    at = int(axis.value) % len(array.shape)
    shape = (*array.shape[:at], *array.shape[at + 1 :])
    sums = (*array.sums, array.shape[at])
    return Array(shape, array.dtype, f"{array.code}.{_REDUCED[name]}({at})", sums=sums)
