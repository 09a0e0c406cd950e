"""One PTX statement, taken apart, and the ways to write it down again with something changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_STATEMENT = re.compile(r"^(\s*)(@!?%p\d+\s+)?([a-z][^;{}]*(?:\{[^;]*?\}[^;{}]*)*)(;.*)$")
_TYPES = {"r": "b32", "rd": "b64", "rs": "b16", "f": "f32", "fd": "f64", "h": "b16", "hh": "b32", "p": "pred"}
NUMBER = r"-?(?:0[xX][0-9a-fA-F]+|\d+)"

Change = tuple[str, str]
"""The kind of a mutant, and its text without the semicolon: guard and statement, a block, or nothing."""


@dataclass(frozen=True)
class Statement:
    """A line's statement: its `indent`, `guard` ("@%p1 " or nothing), `text`; `rest` begins with ";"."""

    indent: str
    guard: str
    text: str
    rest: str

    @classmethod
    def of(cls, line: str) -> Statement | None:
        """That of a line of PTX, if it has one."""
        match = _STATEMENT.match(line)
        return cls(match[1], match[2] or "", match[3].rstrip(), match[4]) if match else None

    @cached_property
    def opcode(self) -> str:
        """With its modifiers, such as `add.f32`."""
        return self.text.split(None, 1)[0]

    @cached_property
    def verb(self) -> str:
        """The opcode up to its first dot."""
        return self.opcode.split(".")[0]

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the verb; a state space such as `shared::cta` is one."""
        return tuple(self.opcode.split(".")[1:])

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """In order, vectors and addresses whole."""
        words = self.text.split(None, 1)
        return tuple(_split(words[1])) if len(words) == 2 else ()

    def whole(self, text: str) -> str:
        """`text` with this statement's guard."""
        return self.guard + text if text else ""

    def coded(self, opcode: str) -> str:
        """With another opcode."""
        return self.whole(opcode + self.text[len(self.opcode) :])

    def given(self, operands: dict[int, str]) -> str:
        """With other operands at these places."""
        return self.whole(self.bare(operands))

    def bare(self, operands: dict[int, str]) -> str:
        """Like `given`, without the guard."""
        changed = [operands.get(index, operand) for index, operand in enumerate(self.operands)]
        return f"{self.opcode} \t{', '.join(changed)}"

    def swapped(self, one: int, other: int) -> str:
        """With two operands in each other's place."""
        return self.given({one: self.operands[other], other: self.operands[one]})

    def instead(self, old: str, operation: str, amount: str, text: str) -> str:
        """A block that computes `operation` of `old` and `amount` in a new register, `other`, and then has
        the statement `text`, which reads that register instead of `old`."""
        kind = register_type(old)
        of = f"{operation} \tother, {old}, {amount};"
        return f"{{ .reg .{kind} other; {of} {self.guard}{text}; }}"

    def computed(self, index: int, operation: str, amount: str) -> str:
        """With the operand at `index` replaced by `operation` of it and `amount`."""
        return self.instead(self.operands[index], operation, amount, self.bare({index: "other"}))

    def twice(self, second: str) -> str:
        """Followed by another."""
        return f"{{ {self.guard}{self.text}; {self.guard}{second}; }}"

    def replaced(self, after: str) -> str:
        """The line with `after` in place of guard and statement."""
        if not after:
            return ""
        block = after.startswith("{")
        return self.indent + after + (self.rest[1:] if block else self.rest)


def register_type(operand: str) -> str:
    """The type, without a dot, that a register of this operand's kind is declared with."""
    match = re.match(r"%([a-z]+)\d+$", operand)
    return _TYPES.get(match[1], "b32") if match else "b32"


def is_register(operand: str, kinds: str = "") -> bool:
    """Whether it is a register, of one of these `kinds` ("r rd") if any are given."""
    match = re.match(r"%([a-z]+)\d+$", operand)
    return match is not None and (not kinds or match[1] in kinds.split())


def is_number(operand: str) -> bool:
    """Whether it is an integer that is written out."""
    return re.fullmatch(NUMBER, operand) is not None


def members(operand: str) -> list[str]:
    """The registers of a vector."""
    return [word.strip() for word in operand.strip("{} ").split(",")]


def vector(names: list[str]) -> str:
    """Written down."""
    return f"{{ {', '.join(names)} }}"


def exchanged(names: list[str], one: int, other: int) -> list[str]:
    """With two members in each other's place."""
    swapped = list(names)
    swapped[one], swapped[other] = names[other], names[one]
    return swapped


def _split(text: str) -> Iterator[str]:
    depth = begin = 0
    for at, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and not depth:
            yield text[begin:at].strip()
            begin = at + 1
    yield text[begin:].strip()
