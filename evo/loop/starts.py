"""The starts of a search: with time left when it has converged, it begins again elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evo.store import TrialRow


@dataclass(frozen=True)
class Start:
    """One start: its first trial, how many it has, and the best of them; None where none is correct."""

    first: int
    trials: int
    best: TrialRow | None


def starts_of(rows: Mapping[int, TrialRow], firsts: Sequence[int]) -> list[Start]:
    """What each start found, of trials by number. `firsts`: the first trials of all but the first start. A
    trial counts for the start that proposed it."""
    found = []
    for first, end in pairwise([0, *firsts, max(rows, default=0) + 1]):
        own = [row for number, row in rows.items() if first <= number < end]
        scored = [(row.score_us, row.number, row) for row in own if row.score_us is not None]
        found.append(Start(first, len(own), min(scored)[2] if scored else None))
    return found
