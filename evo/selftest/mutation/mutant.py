"""One mutant of a kernel, and all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from evo.selftest.mutation import control, matrices, numbers, order, places
from evo.selftest.mutation.statement import Change, Statement


@dataclass(frozen=True)
class Mutant:
    """One statement changed: it was `before`, and is `after` (nothing where it is deleted). `line` counts
    from 1. `changes` are the lines that differ: (number, text); those of a statement that moves are two."""

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


Operator = Callable[[Statement], Iterator[Change]]
OPERATORS: tuple[Operator, ...] = (
    *order.OPERATORS,
    *control.OPERATORS,
    *numbers.OPERATORS,
    *places.OPERATORS,
    *matrices.OPERATORS,
)
"""From a statement to what may be made of it."""

_MOVED = re.compile(rf"^(?:{order.SYNC})\b[^;]*$")
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
        statement = Statement.of(line) if inside else None
        if statement is None or (executed is not None and number not in executed):
            continue
        before, told = statement.guard + statement.text, set()
        for kind, after in changes(statement):
            if after != before and after not in told:
                told.add(after)
                yield Mutant(kind, number, before, after, ((number, statement.replaced(after)),))
        if _MOVED.match(statement.text):
            yield from _moved(lines, number, before)


def changes(statement: Statement) -> Iterator[Change]:
    """What every operator makes of a statement."""
    for operator in OPERATORS:
        yield from operator(statement)


def _moved(lines: list[str], number: int, statement: str) -> Iterator[Mutant]:
    """The synchronisation of line `number` after the next memory access, and before the last one."""
    for step, kind in ((1, "synchronisation later"), (-1, "synchronisation earlier")):
        other = number + step
        while 0 < other <= len(lines):
            line = lines[other - 1]
            there = Statement.of(line)
            if re.match(r"^[$\w]+:", line) or (there and _LEAVES.match(there.text)):
                break  # another basic block
            if there and _ACCESS.match(there.text):
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


def sample(found: list[Mutant], count: int, seed: int | str) -> list[Mutant]:
    """`count` of the mutants, the kinds in turn so that rare ones are all there; which kinds come first
    where there are more of them than `count`, depends on the seed."""
    rng = random.Random(seed)
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in rng.sample(found, len(found)):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    queues = rng.sample(list(by_kind.values()), len(by_kind))
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(found)):
        for queue in queues:
            if queue and len(chosen) < count:
                chosen.append(queue.pop())
    return sorted(chosen, key=lambda m: m.line)
