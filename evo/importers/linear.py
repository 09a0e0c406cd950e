"""Index expressions of a kernel as sums of products, so that one can ask what blockIdx is multiplied by.

`(blockIdx.x * B + threadIdx.x) * 4` is `4 * B * blockIdx.x + 4 * threadIdx.x`. What is no sum, product or
quotient (`i % n`, `index[row]`) is one name, its own text. Quotients are exact: whole tiles are meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

from evo.dtype import CXX_TYPES, dtype_named

Product = tuple[tuple[str, int], ...]
"""Names with their powers, sorted; a divisor has a power of -1."""
Sum = dict[Product, Fraction]
BUILTIN = re.compile(r"(?:blockIdx|threadIdx|blockDim|gridDim)\.[xyz]")
ONE: Sum = {(): Fraction(1)}


MOST = 24
"""Terms of a sum at most, and names that stand for one another: what has more is no index."""


def sum_of(text: str, known: Mapping[str, str], exact: Collection[str]) -> Sum | None:
    """The sum that an expression is; None where it cannot be read. `known`: what names stand for. `exact`:
    names whose quotients are exact, as those of CUDA's own variables are."""
    return _read(text, _Reader(known, exact))


def _read(text: str, reader: _Reader) -> Sum | None:
    plain = re.sub(r"\b(0x[\da-fA-F]+|\d+)[uUlL]+\b", r"\1", text.strip())
    try:
        tree = ast.parse(re.sub(r"\s+", " ", plain), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return reader.read(tree)


class _Reader:
    def __init__(self, known: Mapping[str, str], exact: Collection[str]) -> None:
        self.known, self.exact = known, exact
        self.depth = 0
        self.found: dict[str, Sum] = {}
        """What names are that have been met; those that are being read stand for themselves."""

    def read(self, node: ast.expr) -> Sum:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return {(): Fraction(node.value)} if node.value else {}
        if isinstance(node, ast.Name) and node.id in self.known:
            return self._known(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return product_of({(): Fraction(-1)}, self.read(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            return self._call(node, node.func.id, node.args[0])
        return self._binary(node) if isinstance(node, ast.BinOp) else _name(node)

    def _known(self, node: ast.Name) -> Sum:
        if node.id not in self.found:
            self.found[node.id] = _name(node)
            self.depth += 1
            read = _read(self.known[node.id], self) if self.depth <= MOST else None
            self.depth -= 1
            if read is not None and len(read) <= MOST:
                self.found[node.id] = read
        return self.found[node.id]

    def _call(self, node: ast.Call, function: str, argument: ast.expr) -> Sum:
        if function == "sizeof" and (kind := CXX_TYPES.get(ast.unparse(argument))):
            return {(): Fraction(dtype_named(kind).nbytes)}
        return self.read(argument) if function in CXX_TYPES else _name(node)

    def _binary(self, node: ast.BinOp) -> Sum:
        left, right = self.read(node.left), self.read(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            sign = Fraction(-1 if isinstance(node.op, ast.Sub) else 1)
            found = {key: left.get(key, Fraction()) + sign * right.get(key, 0) for key in {**left, **right}}
            return {key: value for key, value in found.items() if value}
        if isinstance(node.op, ast.Mult):
            return product_of(left, right) if len(left) * len(right) <= MOST else _name(node)
        if isinstance(node.op, (ast.LShift, ast.RShift)) and set(right) <= {()}:
            right = {(): Fraction(2) ** int(right.get((), 0))}
            if isinstance(node.op, ast.LShift):
                return product_of(left, right)
        elif not isinstance(node.op, ast.Div):
            return _name(node)
        names = set(names_in(left))
        if len(right) == 1 and all(name in self.exact or BUILTIN.fullmatch(name) for name in names):
            found = quotient_of(left, right)
            return {(): Fraction(found[()].__floor__())} if set(found) == {()} else found
        return _name(node)


def _name(node: ast.expr) -> Sum:
    return {((ast.unparse(node), 1),): Fraction(1)}


def product_of(left: Sum, right: Sum) -> Sum:
    """All products of a term and a term."""
    found: Sum = {}
    for one, number in left.items():
        for other, factor in right.items():
            powers = dict(one)
            for name, power in other:
                powers[name] = powers.get(name, 0) + power
            key = tuple(sorted((name, power) for name, power in powers.items() if power))
            found[key] = found.get(key, Fraction()) + number * factor
    return {key: value for key, value in found.items() if value}


def quotient_of(left: Sum, right: Sum) -> Sum:
    """A sum divided by a single product."""
    ((key, number),) = right.items()
    return product_of(left, {tuple((name, -power) for name, power in key): 1 / number})


def factor_of(found: Sum, name: str) -> Sum:
    """What a name is multiplied by; empty where it does not occur."""
    one: Sum = {((name, 1),): Fraction(1)}
    return quotient_of({key: value for key, value in found.items() if (name, 1) in key}, one)


def names_in(found: Sum) -> Iterator[str]:
    """All names of a sum, in order."""
    yield from dict.fromkeys(name for key in found for name, _ in key)


def replaced(found: Sum, name: str, by: Sum) -> Sum:
    """The sum with a single product in place of a name."""
    total: Sum = {}
    for key, value in found.items():
        rest: Sum = {tuple(part for part in key if part[0] != name): value}
        power = dict(key).get(name, 0)
        for _ in range(abs(power)):
            rest = product_of(rest, by) if power > 0 else quotient_of(rest, by)
        for one, number in rest.items():
            total[one] = total.get(one, Fraction()) + number
    return total


def whole(found: Sum) -> bool:
    """Whether it is one product above zero without divisors."""
    return countable(found) and all(power > 0 for key in found for _, power in key)


def countable(found: Sum) -> bool:
    """Whether it is one product above zero whose divisors, if any, are names: `TILE / EACH`."""
    positive = all(value > 0 and value.denominator == 1 for value in found.values())
    return len(found) == 1 and positive and all(not key or any(p > 0 for _, p in key) for key in found)


def text_of(found: Sum) -> str:
    """The sum as an expression of a template: `BLOCK * ITEMS`, `block_size_x / 32`, `TILE - 2`."""
    texts = []
    for key, value in found.items():
        above = [name for name, power in key for _ in range(power)]
        below = [name for name, power in key for _ in range(-power)]
        number = abs(value)
        above = [*([str(number.numerator)] if number.numerator > 1 or not above else []), *above]
        below += [str(number.denominator)] if number.denominator > 1 else []
        text = " * ".join(above) + "".join(f" / {name}" for name in below)
        texts.append(("- " if value < 0 else "+ ") + text)
    return " ".join(texts).removeprefix("+ ") or "0"
