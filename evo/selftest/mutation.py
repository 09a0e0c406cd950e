"""Mutants: an honest kernel's PTX, broken in one place.

A mutant changes one statement: a barrier, wait, fence or commit is deleted or moved past a memory access, a
wait made laxer, a store or copy dropped, a predicate turned round, a comparison shifted by one, a constant,
offset, lane or scale changed, two operands swapped, a maximum made a minimum, a term or a shuffle dropped, a
matrix loaded without its transposition. `mutants` runs them through the gate.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

CMP = {"eq": "ne", "ne": "eq", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo",
       "hi": "hs", "hs": "hi", "equ": "neu", "neu": "equ", "ltu": "leu", "leu": "ltu", "gtu": "geu",
       "geu": "gtu"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One statement changed; `line` counts from 1. `changes` are the lines that differ: (number, text)."""

    kind: str
    line: int
    before: str
    after: str
    changes: tuple[tuple[int, str], ...]

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from the other mutants of its kernel."""
        return self.kind, self.line, self.after

    def of(self, ptx: str) -> str:
        """`ptx`, which the mutant was made of, with its change."""
        lines = ptx.splitlines()
        for number, text in self.changes:
            lines[number - 1] = text
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return f"{self.kind}, PTX line {self.line}: {self.before} -> {self.after or 'nothing'}"


Change = Callable[[re.Match[str]], str]


def _delete(_match: re.Match[str]) -> str:
    return ""


def _laxer(match: re.Match[str]) -> str:
    return f"{match[1]}{int(match[2]) + 1}"


def _one_more(match: re.Match[str]) -> str:
    return f"{match[1]}{int(match[2]) + 1}{match[3]}"


def _one_less(match: re.Match[str]) -> str:
    return f"{match[1]}{int(match[2]) - 1}{match[3]}" if int(match[2]) else match[0]


def _other_comparison(match: re.Match[str]) -> str:
    return f"{match[1]}{CMP[match[2]]}{match[3]}"


def _scaled(match: re.Match[str]) -> str:
    value = struct.unpack(">f", bytes.fromhex(match[1]))[0]
    changed = value * 1.02 if value else 0.02
    return "0f" + struct.pack(">f", changed).hex().upper()


def _shrunk(match: re.Match[str]) -> str:
    value = struct.unpack(">f", bytes.fromhex(match[1]))[0]
    return "0f" + struct.pack(">f", value * 0.98 if value else -0.02).hex().upper()


def _swapped(match: re.Match[str]) -> str:
    return f"{match[1]}{match[3]}, {match[2]}"


def _product(match: re.Match[str]) -> str:
    return f"mul.rn.{match[1]} \t{match[2]}, {match[3]}, {match[4]}"


def _own_value(match: re.Match[str]) -> str:
    return f"mov.b32 \t{match[1]}, {match[2]}"


_SYNC = (
    r"(?:bar|barrier)\.(?:cta\.|warp\.|cluster\.)?(?:sync|arrive|wait)|cp\.async\.(?:bulk\.)?(?:wait|commit)"
    r"|fence|membar|mbarrier\.(?:arrive|expect_tx|init)|wgmma\.(?:fence|commit|wait)"
)
_STORE = r"st|red|stmatrix|wmma\.store|cp\.async\.(?:c[ag]|bulk\.tensor)"
_REG = r"%[a-z]+\d+"
_ARITHMETIC = "add|sub|mul|mad|shl|shr|and|or|xor|bfe"
_ORDERED = "sub|div|setp|shl|selp"
_ADDED = rf"^((?:{_ARITHMETIC})[\w.]*\s+{_REG}, .*?(?<![\w%.]))(\d+)(\s*)$"
_MUTATIONS: tuple[tuple[str, re.Pattern[str], Change], ...] = (
    ("synchronisation deleted", re.compile(rf"^(?:{_SYNC})\b[^;]*$"), _delete),
    ("wait made laxer", re.compile(r"^((?:cp\.async|wgmma)\.(?:bulk\.)?wait_group[\w.]*\s+)(\d+)"), _laxer),
    ("store dropped", re.compile(rf"^(?:{_STORE})\b[^;]*$"), _delete),
    ("predicate turned", re.compile(r"^@(?=%p)"), lambda _: "@!"),
    ("predicate turned", re.compile(r"^@!(?=%p)"), lambda _: "@"),
    ("comparison shifted", re.compile(rf"^(setp\.)({'|'.join(CMP)})(\.)"), _other_comparison),
    ("constant", re.compile(_ADDED), _one_more),
    ("constant", re.compile(_ADDED), _one_less),
    ("constant", re.compile(r"^(mov\.[bsu](?:16|32|64)\s+%\w+, )(\d+)(\s*)$"), _one_more),
    ("offset", re.compile(r"(\[%\w+\+)(\d+)(\])"), lambda m: f"{m[1]}{int(m[2]) + 16}{m[3]}"),
    ("offset", re.compile(r"\[(%\w+)\]"), lambda m: f"[{m[1]}+16]"),
    ("scale", re.compile(r"\b0[fF]([0-9A-Fa-f]{8})\b"), _scaled),
    ("scale", re.compile(r"\b0[fF]([0-9A-Fa-f]{8})\b"), _shrunk),
    ("lane", re.compile(r"^(shfl[\w.]*\s+[^,]+, [^,]+, )(\d+)(, .*)$"), _one_more),
    ("operands swapped", re.compile(rf"^((?:{_ORDERED})[\w.]*\s+[^,]+, )({_REG}), ({_REG})"), _swapped),
    ("maximum made minimum", re.compile(r"^max\b"), lambda _: "min"),
    ("sum made difference", re.compile(r"^add(?=[\w.]*\.f(?:32|16x2|16)\b)"), lambda _: "sub"),
    ("term dropped", re.compile(r"^fma[\w.]*\.(f32|f16x2)\s+([^,]+), ([^,]+), ([^,]+), [^,]+$"), _product),
    ("shuffle dropped", re.compile(r"^shfl[\w.]*\s+([^,|]+)(?:\|[^,]+)?, ([^,]+), .*$"), _own_value),
    ("not transposed", re.compile(r"^(ldmatrix[\w.]*)\.trans\b"), lambda m: m[1]),
    ("product dropped", re.compile(r"^(?:mma|wmma\.mma|wgmma\.mma_async)\b[^;]*$"), _delete),
)  # fmt: skip

_STATEMENT = re.compile(r"^(\s*)(@!?%p\d+\s+)?([a-z][^;{}]*(?:\{[^;]*?\}[^;{}]*)*)(;.*)$")
_MOVED = re.compile(rf"^(?:{_SYNC})\b[^;]*$")
_ACCESS = re.compile(
    r"^(?:ld\.(?:shared|global)|st|red|atom|ldmatrix|stmatrix|cp|wgmma\.mma_async|mma|wmma)\b"
)
_LEAVES = re.compile(r"^(?:bra|brx|ret|exit|call)\b")


def mutants(ptx: str, executed: Collection[int] | None = None) -> Iterator[Mutant]:
    """Every mutant of every statement, in order; only of the PTX lines `executed`, if given (from 1)."""
    lines = ptx.splitlines()
    inside = False
    for number, line in enumerate(lines, 1):
        inside = inside or ".entry" in line
        match = _STATEMENT.match(line)
        if not inside or match is None or (executed is not None and number not in executed):
            continue
        indent, guard, statement, rest = match[1], match[2] or "", match[3].rstrip(), match[4]
        for kind, pattern, change in _MUTATIONS:
            text = guard + statement if kind == "predicate turned" else statement
            changed, count = pattern.subn(change, text, count=1)
            if not count or changed == text:
                continue
            after = "" if not changed else changed if kind == "predicate turned" else guard + changed
            replaced = indent + after + rest if after else ""
            yield Mutant(kind, number, guard + statement, after, ((number, replaced),))
        if _MOVED.match(statement):
            yield from _moved(lines, number, guard + statement)


def _moved(lines: list[str], number: int, statement: str) -> Iterator[Mutant]:
    """The synchronisation of line `number` after the next memory access, and before the last one."""
    for step, kind in ((1, "synchronisation later"), (-1, "synchronisation earlier")):
        other = number + step
        while 0 < other <= len(lines):
            line = lines[other - 1]
            match = _STATEMENT.match(line)
            if re.match(r"^[$\w]+:", line) or (match and _LEAVES.match(match[3])):
                break  # another basic block
            if match and _ACCESS.match(match[3]):
                both = f"{line} {statement};" if step > 0 else f"{statement}; {line}"
                after = f"{'after' if step > 0 else 'before'} line {other}"
                yield Mutant(kind, number, statement, after, ((number, ""), (other, both)))
                break
            other += step


_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s+\d+(?:,.*\binlined_at\s+\d+\s+(\d+))?")


def cuda_lines(ptx: str) -> dict[int, tuple[int, ...]]:
    """PTX line -> the line of the CUDA source that it came from, and the one that this was inlined at."""
    found: dict[int, tuple[int, ...]] = {}
    place: tuple[int, ...] = ()
    for number, line in enumerate(ptx.splitlines(), 1):
        if match := _LOC.match(line):
            place = tuple(int(n) for n in match.groups() if n)
        elif place:
            found[number] = place
    return found


def sample(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of the mutants, the kinds in turn so that rare ones are all there."""
    rng = random.Random(seed)
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in rng.sample(found, len(found)):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(found)):
        for queue in by_kind.values():
            if queue and len(chosen) < count:
                chosen.append(queue.pop())
    return sorted(chosen, key=lambda m: m.line)
