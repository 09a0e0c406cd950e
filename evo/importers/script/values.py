"""Values of a Python script that is read and not run: numbers that remember how they were made, arrays, and
what is unknown before the script runs."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Number:
    """A number, and `text`: the expression over the script's whole numbers that gives it."""

    value: int | float | bool
    text: str = ""
    dtype: str = ""
    """evo's name of its type, where the script says one: np.int32(n)."""

    @property
    def code(self) -> str:
        return self.text or repr(self.value)


@dataclass(frozen=True)
class Unknown:
    """What only the running script knows. `why` is a part of a sentence, with the line."""

    why: str


@dataclass(frozen=True)
class Array:
    """An array: its shape, evo's name of its type, and `code`, how torch makes it of the arrays that the
    script drew (each of them is `@number@` there, a number of the script `‹expression›`)."""

    shape: tuple[Number, ...]
    dtype: str
    code: str
    zeros: bool = False
    between: tuple[Number, Number] | None = None
    sums: tuple[Number, ...] = ()
    """The sides that it adds up along."""
    seen: Array | None = None
    """The drawn array that this is another view of."""


@dataclass(frozen=True)
class Text:
    """The text of a file, or of the script: `lines` begin at `line` of `origin`."""

    text: str
    origin: str
    line: int


@dataclass(frozen=True)
class Function:
    """A function of the script, or a lambda, with what it sees."""

    node: ast.FunctionDef | ast.Lambda
    names: dict[str, Any] = field(compare=False, repr=False, default_factory=dict)


@dataclass(frozen=True)
class Library:
    """A module, or a name of one: `numpy.random.rand`. Cupy's arrays are made as numpy's are."""

    path: str


@dataclass(frozen=True)
class Method:
    """A method of a value, not called yet."""

    owner: Any
    name: str


OPERATORS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
}
_WIDTH = {"bool": 0, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "fp16": 3, "i32": 4, "u32": 4, "fp32": 5}
LARGEST = 2**63
"""No number of a kernel is larger; a script's `2 ** (2 ** 40)` is not computed."""


def plain(value: Any) -> Any:
    """The value without histories: lists and numbers of Python. What is no number stays as it is."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def unknown_part(value: Any) -> Unknown | None:
    """The first part of a value that is unknown."""
    if isinstance(value, Unknown):
        return value
    if isinstance(value, (list, tuple)):
        return next((found for one in value if (found := unknown_part(one))), None)
    return None


def combine(  # noqa: PLR0911 - one for each pair of kinds
    kind: type[ast.AST], left: Any, right: Any, where: str
) -> Any:
    """What an operator gives; Unknown where it is not for such values."""
    for side in (left, right):
        if isinstance(side, Unknown):
            return side
    if isinstance(left, Array) or isinstance(right, Array):
        return _of_arrays(kind, left, right, where)
    if isinstance(left, Number) and isinstance(right, Number) and kind in OPERATORS:
        return _of_numbers(kind, left, right, where)
    if kind is ast.Add and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return [*left, *right]
    if kind is ast.Add and isinstance(left, str) and isinstance(right, str):
        return left + right
    if kind is ast.Mult and isinstance(left, list) and isinstance(right, Number):
        return left * min(int(right.value), 10_000)
    return Unknown(f"an operation that is not understood ({where})")


def _of_numbers(kind: type[ast.AST], left: Number, right: Number, where: str) -> Number | Unknown:
    sign, compute = OPERATORS[kind]
    if kind in (ast.Pow, ast.LShift) and abs(right.value) > 64:
        return Unknown(f"a number above 2^63 ({where})")
    try:
        value = compute(left.value, right.value)
    except (ArithmeticError, TypeError, ValueError):
        return Unknown(f"a computation that fails ({where})")
    if isinstance(value, complex) or abs(value) >= LARGEST:
        return Unknown(f"a number above 2^63 ({where})")
    text = f"({left.code} {sign} {right.code})" if left.text or right.text else ""
    return Number(value, text)


def _of_arrays(kind: type[ast.AST], left: Any, right: Any, where: str) -> Any:
    if not all(isinstance(side, (Array, Number)) for side in (left, right)):
        return Unknown(f"an operation that is not understood ({where})")
    if kind is ast.MatMult:
        return product(left, right, where)
    if kind not in OPERATORS:
        return Unknown(f"an operation that is not understood ({where})")
    arrays = [side for side in (left, right) if isinstance(side, Array)]
    widest = max(arrays, key=lambda array: len(array.shape))
    sign = OPERATORS[kind][0]
    dtype = max((array.dtype for array in arrays), key=lambda name: _WIDTH.get(name, 6))
    sums = tuple(side for array in arrays for side in array.sums)
    return Array(widest.shape, dtype, f"({code_of(left)} {sign} {code_of(right)})", sums=sums)


def product(left: Any, right: Any, where: str) -> Any:
    """A product of matrices or vectors, as torch's `@`."""
    if not (isinstance(left, Array) and isinstance(right, Array)):
        return Unknown(f"a product of what is no array ({where})")
    rows = left.shape[:-1]
    columns = right.shape[1:] if len(right.shape) > 1 else ()
    sums = (*left.sums, *right.sums, *left.shape[-1:])
    return Array((*rows, *columns), left.dtype, f"({left.code} @ {right.code})", sums=sums)


def code_of(value: Array | Number) -> str:
    """Torch's text of an operand."""
    return value.code if isinstance(value, Array) else f"‹{value.code}›"


def elements(array: Array) -> Number:
    """How many elements an array has."""
    text = " * ".join(side.code for side in array.shape)
    return Number(math.prod(int(side.value) for side in array.shape), text and f"({text})")
