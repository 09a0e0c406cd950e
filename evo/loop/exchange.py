"""What studies of the same problem find on other GPUs, while these and this one are searched."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evo.errors import UnknownName
from evo.loop.spaces import SearchSpace
from evo.store import Store
from evo.strategy import Proposal

LOOK_S = 10.0
"""Seconds between two looks at the other studies."""
BEST = 3
"""So many of the best kernels of each are tried here, too."""


class Exchanged(Sequence[Proposal]):
    """The best kernels so far of the studies `others`, those that are feasible in `spaces`; of a study that
    is not there yet, none. It changes as these studies go on."""

    def __init__(self, store: Store, others: Sequence[str], spaces: Mapping[str, SearchSpace]) -> None:
        self._store, self._others, self._spaces = store, others, spaces
        self._known: list[Proposal] = []
        self._looked = float("-inf")

    def __iter__(self) -> Iterator[Proposal]:
        if time.monotonic() > self._looked + LOOK_S:
            self._looked = time.monotonic()
            self._known = [one for other in self._others for one in self._best(other)]
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, which: Any) -> Any:
        return self._known[which]

    def _best(self, other: str) -> list[Proposal]:
        try:
            rows = self._store.rows(self._store.study(other))
        except UnknownName:
            return []
        times = [(row.score_us, row.number, row) for row in rows if row.score_us is not None]
        found = [Proposal(row.template, row.point) for _, _, row in sorted(times)[:BEST]]
        return [
            one
            for one in found
            if one.template in self._spaces and self._spaces[one.template].feasible.contains(one.point)
        ]
