"""Which of many trials a model is built on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def representative(
    scores: npt.NDArray[np.floating] | Sequence[float],
    count: int,
    best: int,
    order: npt.NDArray[np.intp] | None = None,
) -> npt.NDArray[np.intp]:
    """The numbers of all trials, or of `count` of them where there are more: the `best` ones, a quarter of
    `count` the newest, and the rest evenly from all others. `order`: the stable order of `scores` (n,), where
    it is known already."""
    if len(scores) <= count:
        return np.arange(len(scores))
    chosen = np.zeros(len(scores), bool)
    ranked = np.argsort(np.asarray(scores), kind="stable") if order is None else order
    chosen[ranked[:best]] = True
    chosen[-(count // 4) :] = True
    rest = np.flatnonzero(~chosen)
    chosen[rest[np.linspace(0, len(rest) - 1, count - int(chosen.sum())).astype(int)]] = True
    return np.flatnonzero(chosen)
