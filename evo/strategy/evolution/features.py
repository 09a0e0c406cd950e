"""A point as numbers, for models of how long it will take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from evo.space import FeasibleSet, Parameter, ResourceModels
from evo.strategy.evolution.distance import Floats

Points = npt.NDArray[np.signedinteger]
"""Points as positions in their parameters' values: (n, parameters)."""


DIGITS = 9
"""Of a product's column: sums of logarithms that are equal must be equal numbers."""
CACHED_POINTS = 1000
"""Points whose features are kept for the next questions."""


class Features:
    """Columns of numbers for points given as positions (n, parameters).

    An ordered parameter is a column between 0 and 1, by the logarithm of its values where none is negative;
    a parameter of more than two values, ordered or not, is also a label, of which only equality counts. Two
    kinds of columns are derived: the products of two sizes (a block's threads, a tile's width), and by what
    power of two a size can be divided. Then come what the template's models say (shared memory, threads,
    registers, CTAs for each SM, how these share it), with the `registers` that a point's kernel will have
    where these are known better, and `extra` columns, such as what an earlier study would expect.
    """

    def __init__(
        self,
        feasible: FeasibleSet,
        extra: tuple[Callable[[Points], Floats], ...] = (),
        registers: Callable[[Points], Floats] | None = None,
    ) -> None:
        self._feasible = feasible
        self._extra = extra
        self._registers = registers
        self._tables: list[tuple[int, Floats]] = []
        labels: list[bool] = []
        plain: list[bool] = []
        for i, parameter in enumerate(feasible.space.parameters):
            count = len(parameter.values)
            if parameter.ordered and count > 1:
                self._tables.append((i, _scaled_values(parameter)))
                labels.append(False)
                plain.append(True)
            if count > 2 or (count == 2 and not parameter.ordered):
                self._tables.append((i, np.arange(count, dtype=float)))
                labels.append(True)
                plain.append(not parameter.ordered)
        own = len(self._tables)
        sizes = [(i, p) for i, p in enumerate(feasible.space.parameters) if _is_size(p)]
        self._tables += [(i, scaled) for i, p in sizes if (scaled := _powers_of_two(p)) is not None]
        self._products = [
            (i, j, *_scaled_product(one, other)) for (i, one), (j, other) in itertools.combinations(sizes, 2)
        ]
        derived = len(self._tables) - own + len(self._products)
        labels += [False] * derived
        plain += [True] * derived
        others = len(extra) + (0 if feasible.space.models is None else _count(feasible.space.models))
        self.derived = np.array([*[False] * own, *[True] * derived, *[False] * others])
        """Which columns follow from several or by a rule of thumb: each of them is expected to say little."""
        self.extra = slice(len(labels), len(labels) + len(extra))
        """Which columns are the extra ones."""
        self.levels: list[Floats | None] = [np.unique(table) for _, table in self._tables]
        self.levels += [
            np.unique(np.add.outer(one, other).round(DIGITS)) for _, _, one, other in self._products
        ]
        """The values that each column has, ascending; None: any."""
        self.levels += [None] * others
        self.labels = np.array([*labels, *[False] * others], bool)
        """Which columns are labels."""
        self.plain = np.array([*plain, *[True] * others], bool)
        """All columns but the labels of ordered parameters."""

        self._known: dict[bytes, Floats] = {}

    def keep(self, point: Points, columns: Floats) -> None:
        """Keeps the `columns` of a `point` that will be asked for."""
        if len(self._known) > CACHED_POINTS:
            self._known.clear()
        self._known[point.tobytes()] = columns

    def of_few(self, points: Sequence[Points]) -> Floats:
        """(n, columns) for `points`, most of which were asked for or kept a moment ago."""
        keys = [point.tobytes() for point in points]
        fresh = {key: point for key, point in zip(keys, points, strict=True) if key not in self._known}
        if fresh:
            if len(self._known) > CACHED_POINTS:
                self._known.clear()
                return self.of_few(points)
            self._known |= zip(fresh, self(np.stack(list(fresh.values()))), strict=True)
        return np.stack([self._known[key] for key in keys])

    def __call__(self, rows: Points) -> Floats:
        """(n, columns) for positions (n, parameters); in memory each column lies in one piece."""
        own = [table[rows[:, i]] for i, table in self._tables]
        own += [(one[rows[:, i]] + other[rows[:, j]]).round(DIGITS) for i, j, one, other in self._products]
        return np.array([*own, *self._others(rows)]).reshape(-1, len(rows)).T

    def _others(self, rows: Points) -> list[Floats]:
        registers = self._registers(rows) if self._registers else None
        models = template_models(self._feasible, rows, registers)
        return [*(column(rows) for column in self._extra), *models]


def template_models(feasible: FeasibleSet, rows: Points, registers: Floats | None = None) -> list[Floats]:
    """What the template's models say of points, each about 1 wide; empty where there are no models.
    `registers`: what their kernels will have a thread, where that is known better than by the models."""
    models = feasible.space.models
    if models is None or not len(rows):
        return []
    try:
        return _asked(models, feasible, rows, registers)
    except Exception:  # noqa: BLE001 - at some point, which will be tried and told: the others count
        if len(rows) == 1:
            return [np.ones(1)] * _count(models)
        half = len(rows) // 2
        one, other = (None, None) if registers is None else (registers[:half], registers[half:])
        parts = template_models(feasible, rows[:half], one), template_models(feasible, rows[half:], other)
        return [np.concatenate(pair) for pair in zip(*parts, strict=True)]


def _count(models: ResourceModels) -> int:
    """How many columns `_asked` gives."""
    return 2 + (models.registers is not None) + 4 * (models.grid is not None)


def _asked(
    models: ResourceModels, feasible: FeasibleSet, rows: Points, registers: Floats | None
) -> list[Floats]:
    problem, gpu = feasible.problem, feasible.limits.gpu
    p = feasible.space.columns(rows, problem, gpu)
    smem = np.asarray(models.smem_bytes(p, problem), float) / feasible.limits.smem_bytes
    threads = np.asarray(models.threads(p, problem), float)
    columns = [smem, np.log2(threads) / 3]
    if models.registers is not None:
        modelled = np.asarray(models.registers(p, problem), float)
        columns.append(modelled / 256)
        registers = modelled.round() if registers is None else registers
    filled = models.occupancy(p, problem, gpu, 0 if registers is None else registers)
    if filled is not None:
        columns += [
            np.log2(filled.waves) / 4,
            np.log2(filled.rounds) / 2,
            np.log2(filled.together) / 2,
            np.log2(filled.resident) / 3,
        ]
    return [np.broadcast_to(column, len(rows)) for column in columns]


def _is_size(parameter: Parameter) -> bool:
    return parameter.ordered and len(parameter.values) > 2 and min(map(float, parameter.values)) > 0


def _scaled_product(one: Parameter, other: Parameter) -> tuple[Floats, Floats]:
    """Of the values of two sizes what each adds to the logarithm of the product, which is 0 to 1."""
    logs = [np.log([float(v) for v in parameter.values]) for parameter in (one, other)]
    width = sum(float(np.ptp(each)) for each in logs)
    first, second = ((each - each.min()) / width for each in logs)
    return first, second


def _powers_of_two(parameter: Parameter) -> Floats | None:
    """By what power of two each value can be divided, as 0 to 1; None where that says nothing more."""
    values = [float(v) for v in parameter.values]
    if not all(value.is_integer() for value in values):
        return None
    powers = np.array([(int(value) & -int(value)).bit_length() for value in values], float)
    if np.ptp(powers) == 0 or all(value == 2 ** (p - 1) for value, p in zip(values, powers, strict=True)):
        return None
    return np.asarray((powers - powers.min()) / np.ptp(powers))


def _scaled_values(parameter: Parameter) -> Floats:
    numbers = np.array([float(v) for v in parameter.values])
    if numbers.min() >= 0:
        # 0, 1, 2, 4, 8 are steps of a ladder, too
        numbers = np.log(numbers + (0 if numbers.min() else numbers[numbers > 0].min()))
    return np.asarray((numbers - numbers.min()) / (numbers.max() - numbers.min()))
