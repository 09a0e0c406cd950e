"""What parameters do to a template's times, from trials that a search chose for other reasons.

A search does not try all values equally often: it tries most points where kernels are fast. So the plain
median of a value depends as much on the other values it was tried with as on itself. Three questions depend
less on it:

- *pairs*: trials that differ in one parameter alone. Their ratio is a small experiment, however the search
  chose its points;
- *the additive model*: log time = a sum of one number a value (least squares). What only one parameter
  explains is the drop of R² without it;
- *interactions*: what two parameters together explain of the model's residuals, beyond chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
import numpy.typing as npt

from evo.trial import Point, Value

LEAST_MODEL_TRIALS = 40
"""An additive model is fitted to no fewer trials."""
LEAST_CELL_TRIALS = 3
"""A combination of two values with fewer trials is ignored."""


@dataclass(frozen=True)
class ScoredTrial:
    """A correct trial: its number, point, and time in µs (measured, or estimated)."""

    number: int
    point: Point
    us: float


@dataclass(frozen=True)
class PairedEffect:
    """Trials that differ in one parameter alone: `pairs` of them have `value` on one side. `ratio` is the
    median of (time with the other value) / (time with `value`): above 1, `value` is the faster one; `won`: in
    how many."""

    value: Value
    pairs: int
    ratio: float
    won: int


@dataclass(frozen=True)
class Interaction:
    """Two parameters whose effects do not add up: `share` of the additive model's residual variance is
    explained by their combinations, beyond what chance would. `best`: the combination whose `trials` are
    faster by `gain` (1.1: 10 %) than the two values promise by themselves; `best_us` is the time of the
    fastest of them."""

    names: tuple[str, str]
    share: float
    best: tuple[Value, Value]
    gain: float
    trials: int
    best_us: float


def paired_effects(trials: Sequence[ScoredTrial]) -> dict[str, list[PairedEffect]]:
    """By parameter, the values that have pairs, best ratio first."""
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[Value, float]]] = {}
    for trial in trials:
        items = {name: f"{type(value).__name__} {value}" for name, value in trial.point.items()}
        rest = frozenset(items.items())
        for name, text in items.items():
            key = name, rest - {(name, text)}
            groups.setdefault(key, []).append((trial.point[name], trial.us))
    ratios: dict[str, dict[tuple[str, Value], list[float]]] = {}
    for (name, _), members in groups.items():
        for (one, us), (other, other_us) in combinations(members, 2):
            if identity(one) == identity(other):
                continue
            of_name = ratios.setdefault(name, {})
            of_name.setdefault(identity(one), []).append(other_us / us)
            of_name.setdefault(identity(other), []).append(us / other_us)
    return {
        name: sorted(
            (
                PairedEffect(value, len(r), median(r), sum(x > 1 for x in r))
                for (_, value), r in found.items()
            ),
            key=lambda effect: -effect.ratio,
        )
        for name, found in ratios.items()
    }


class AdditiveModel:
    """log time as a sum of one number for each parameter's value, by least squares over `trials`."""

    def __init__(self, trials: Sequence[ScoredTrial]) -> None:
        self._codes = {name: _codes([t.point[name] for t in trials]) for name in trials[0].point}
        self._varied = [name for name, (values, _) in self._codes.items() if len(values) > 1]
        self._logs = np.log([t.us for t in trials])
        self._total = float(((self._logs - self._logs.mean()) ** 2).sum())
        self._residuals = self._fit(self._varied)

    @property
    def r2(self) -> float:
        """The share of the variance of log time that the sum explains."""
        return 1 - float((self._residuals**2).sum()) / self._total if self._total else 0.0

    def explained(self) -> dict[str, float]:
        """By parameter: the share of the variance that is explained with it and not without it."""
        if not self._total:
            return {}
        return {
            name: max(0.0, self.r2 - (1 - self._loss([n for n in self._varied if n != name]) / self._total))
            for name in self._varied
        }

    def interactions(self, least_share: float = 0.05) -> list[Interaction]:
        """Pairs of parameters that explain at least `least_share` of what the sum leaves unexplained."""
        left = float((self._residuals**2).sum())
        if left <= 1e-12 * max(1.0, self._total):
            return []
        found = [self._interaction(a, b, left) for a, b in combinations(self._varied, 2)]
        return sorted((i for i in found if i and i.share >= least_share), key=lambda i: -i.share)

    def _interaction(self, a: str, b: str, left: float) -> Interaction | None:
        (values_a, codes_a), (values_b, codes_b) = self._codes[a], self._codes[b]
        cells = codes_a * len(values_b) + codes_b
        counts = np.bincount(cells, minlength=len(values_a) * len(values_b))
        sums = np.bincount(cells, self._residuals, minlength=len(counts))
        known = counts >= LEAST_CELL_TRIALS
        n, freedom = len(cells), int((counts > 0).sum()) - len(values_a) - len(values_b) + 1
        if freedom < 1 or n - freedom - 1 < 1 or not known.any():
            return None
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        explained = float((counts * means**2).sum()) / left
        # adjusted: chance alone explains freedom / n
        share = 1 - (1 - explained) * (n - 1) / (n - 1 - freedom)
        best = int(np.where(known, means, np.inf).argmin())
        value_a, value_b = values_a[best // len(values_b)], values_b[best % len(values_b)]
        fastest = float(np.exp(self._logs[cells == best].min()))
        gain = float(np.exp(-means[best]))
        return Interaction((a, b), share, (value_a, value_b), gain, int(counts[best]), fastest)

    def _loss(self, names: Sequence[str]) -> float:
        return float((self._fit(names) ** 2).sum())

    def _fit(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        columns = [np.ones(len(self._logs))]
        for name in names:
            values, codes = self._codes[name]
            columns += [(codes == i).astype(float) for i in range(1, len(values))]
        matrix = np.stack(columns, axis=1)
        solution = np.linalg.lstsq(matrix, self._logs, rcond=None)[0]
        residuals: npt.NDArray[np.float64] = self._logs - matrix @ solution
        return residuals


def identity(value: Value) -> tuple[str, Value]:
    """Equal for equal values: True and 1 are equal in Python, and may both be values of one parameter."""
    return type(value).__name__, value


def _codes(values: Iterable[Value]) -> tuple[list[Value], npt.NDArray[np.intp]]:
    """The different values, and for each the place of its value among them."""
    places: dict[tuple[str, Value], int] = {}
    codes = [places.setdefault(identity(value), len(places)) for value in values]
    return [value for _, value in places], np.array(codes, np.intp)


def by_value(trials: Sequence[ScoredTrial], name: str) -> Mapping[tuple[str, Value], list[ScoredTrial]]:
    """The trials of each value of parameter `name`."""
    found: dict[tuple[str, Value], list[ScoredTrial]] = {}
    for trial in trials:
        found.setdefault(identity(trial.point[name]), []).append(trial)
    return found
