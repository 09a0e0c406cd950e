"""Which parameters change nothing, by pairs of trials that differ in one parameter alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, combinations

from evo.store import TrialRow
from evo.trial import Value


@dataclass(frozen=True)
class DeadParameter:
    """A parameter that changes nothing: in all `pairs` of trials that differ in it alone, machine code and
    launch are equal."""

    template: str
    name: str
    pairs: int


def dead_parameters(rows: Iterable[TrialRow]) -> list[DeadParameter]:
    """The parameters for which every pair of trials that differ in them alone has the same machine code and
    launch. Trials that did not compile are not counted."""
    by_template: dict[tuple[str, ...], list[tuple[tuple[Value, ...], tuple[str, str]]]] = {}
    for row in rows:
        if row.machine_code:
            names = tuple(sorted(row.point))
            point = tuple(row.point[name] for name in names)
            by_template.setdefault((row.template, *names), []).append(
                (point, (row.machine_code, row.launch_digest))
            )
    pairs: Counter[tuple[str, str]] = Counter()
    equal: Counter[tuple[str, str]] = Counter()
    for (template, *names_of), trials in by_template.items():
        for i, name in enumerate(names_of):  # one by one: the groups of all take a gigabyte of 100,000
            groups: dict[tuple[Value, ...], list[tuple[str, str]]] = {}
            for point, code in trials:
                groups.setdefault(point[:i] + point[i + 1 :], []).append(code)
            for one, other in chain.from_iterable(combinations(codes, 2) for codes in groups.values()):
                pairs[template, name] += 1
                equal[template, name] += one == other
    return [DeadParameter(*key, count) for key, count in sorted(pairs.items()) if equal[key] == count]
