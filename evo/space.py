"""What may fill the holes of a template: parameters, rules, and the points that the rules allow.

A rule is one function, `rule(p, limits, problem)`, over *columns*: `p.bm` is an array with one value a point,
so a rule is written with operators (`&`, `|`, `~`, `np.where`), and a million points cost a fraction of a
second. A single point is a column of length one, so there is only one way to evaluate a rule.

Rules are asked in order and a point is counted under the *first* rule that rejects it; later rules see
only the points that survived, and need not make sense of the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evo.errors import BadTemplate, EvoError, UsageError
from evo.gpu import KIB, Limits
from evo.trial import Point, Problem, Value

Indices = npt.NDArray[np.intp]
"""Positions in the tuples of values: (points, parameters)."""

ENUMERATED = 1 << 22
"""Products up to this size are enumerated whole; larger ones are sampled."""
SAMPLED = 1 << 18
"""Points drawn from a product that is too large to enumerate."""
_CHUNK = 1 << 18  # points evaluated at once: bounds the memory of the columns, not the result

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TEXT = re.compile(r"[A-Za-z0-9_.+-]*")  # goes into a comment and into C++: no quotes, backslashes, line ends


@dataclass(frozen=True)
class Parameter:
    """One hole. Numeric values are ordered; others are choices without order.

    `layer` is the level of the two-layer search it belongs to, `off` the value that switches the idea off
    (for ablations), `meaning` and `expected` (what it should bring, and when) are sentences for a person.
    `worth` is that expectation in figures, if it has any: time with `off` / time with another value, from and
    to.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    layer: Literal["macro", "micro"] = "micro"
    off: Value | None = None
    meaning: str = ""
    expected: str = ""
    worth: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or hasattr(_Columns, self.name):
            raise BadTemplate(f"unusable parameter name: {self.name!r}", "lower_snake: k_stages")
        if not self.values:
            raise BadTemplate(f"parameter {self.name} has no values", "give at least one")
        for value in self.values:
            if isinstance(value, str) and not _TEXT.fullmatch(value):
                raise BadTemplate(f"parameter {self.name}: unusable value {value!r}", "letters, digits, _.+-")
        if len({(type(v), v) for v in self.values}) != len(self.values):
            raise BadTemplate(f"parameter {self.name} has a value twice", f"values: {self.values}")
        if self.worth is not None and not (0 < self.worth[0] <= self.worth[1] and self.off is not None):
            raise BadTemplate(
                f"parameter {self.name}: worth {self.worth}", "(1.2, 1.3), and `off`, the value without it"
            )
        for value in (self.default,) if self.off is None else (self.default, self.off):
            if not any(_same(value, v) for v in self.values):
                raise BadTemplate(f"parameter {self.name} has no value {value!r}", f"values: {self.values}")

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers, so that there are adjacent ones."""
        return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.values)

    def random(self, rng: np.random.Generator) -> Value:
        """A value, all equally likely."""
        return self.values[int(rng.integers(len(self.values)))]

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """The adjacent values of an ordered parameter; all other values of an unordered one."""
        if not self.ordered:
            return tuple(v for v in self.values if not _same(v, value))
        ladder = sorted(self.values)
        at = ladder.index(value)
        return tuple(ladder[i] for i in (at - 1, at + 1) if 0 <= i < len(ladder))

    def parse(self, value: object) -> Value:
        """The value meant by `value` (itself, or its text: "64", "true", "xor"); else UsageError."""
        for known in self.values:
            if _same(known, value) or (isinstance(value, str) and value.lower() == str(known).lower()):
                return known
        known_values = ", ".join(str(v) for v in self.values)
        raise UsageError(f"parameter {self.name} cannot be {value!r}", f"one of {known_values}")

    def position(self, value: Value) -> int:
        """Which of the values `value` is; else UsageError."""
        try:
            return self._positions[isinstance(value, bool), value]
        except (KeyError, TypeError):
            raise UsageError(f"parameter {self.name} cannot be {value!r}", f"one of {self.values}") from None

    @cached_property
    def _positions(self) -> dict[tuple[bool, Value], int]:
        return {(isinstance(v, bool), v): i for i, v in reversed(list(enumerate(self.values)))}

    @cached_property
    def column(self) -> npt.NDArray[Any]:
        """The values as an array; of objects where their types differ."""
        uniform = len({type(v) for v in self.values}) == 1
        return np.array(self.values, dtype=None if uniform else object)


def _same(a: object, b: object) -> bool:
    """Equal, where True is not 1 (both may be values of one parameter and render differently)."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


class Filling(dict[str, Any]):
    """Values of holes, readable as `p.bm` and `p["bm"]`: what rules, models and `derived` get."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise BadTemplate(f"there is no parameter {name}", f"parameters: {known}") from None


class _Columns(Filling):
    """Columns of the points `rows` (n, parameters), built when they are first asked for."""

    def __init__(self, parameters: Sequence[Parameter], rows: Indices) -> None:
        super().__init__()
        self._sources = {p.name: (p, i) for i, p in enumerate(parameters)}
        self._rows = rows

    def __missing__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._sources:
            known = ", ".join(self._sources)
            raise BadTemplate(f"there is no parameter {name}", f"parameters: {known}")
        parameter, i = self._sources[name]
        column: npt.NDArray[Any] = parameter.column[self._rows[:, i]]
        self[name] = column
        return column

    def __getattr__(self, name: str) -> Any:
        return self[name]

    @property
    def points_asked(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class Rule:
    """A feasibility constraint. `allowed(p, limits, problem)` gives one truth value a point; `reason` says in
    words why a point is refused, and may hold fields of `limits` and `problem`, and the shared-memory limit
    as `smem`: "tile longer than the {problem[L]} keys", "more than {smem} of shared memory"."""

    allowed: Callable[[Any, Limits, Problem], Any]
    reason: str

    def why(self, limits: Limits, problem: Problem) -> str:
        """The reason, with its numbers: the phrase that rejections are counted by."""
        try:
            return self.reason.format(limits=limits, problem=problem, smem=smem_text(limits.smem_bytes))
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            hint = "fields: {smem}, and of limits and problem, as in {problem[D]}"
            raise BadTemplate(f"{self.place}: malformed reason {self.reason!r}: {error}", hint) from error

    @property
    def name(self) -> str:
        return self.allowed.__name__

    @property
    def place(self) -> str:
        """`file:line` of the rule's function."""
        code = self.allowed.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    def __call__(self, p: Any, limits: Limits, problem: Problem) -> Any:
        return self.allowed(p, limits, problem)

    def mask(self, columns: _Columns, limits: Limits, problem: Problem) -> npt.NDArray[np.bool_]:
        """One truth value a point. BadTemplate if the function fails or answers something else."""
        try:
            answer = np.asarray(self.allowed(columns, limits, problem))
        except BadTemplate as error:
            if self.place in error.message:
                raise
            raise BadTemplate(f"{self.place}: {error.message}", error.hint) from error
        except EvoError:
            raise
        except Exception as error:  # whatever a template's rule raises is the template's fault
            hint = "a rule gets arrays: write & | ~ and np.where, not `and`, `or`, `not`, `if`"
            raise BadTemplate(f"{self.place}: rule {self.name} failed: {error}", hint) from error
        if answer.dtype != np.bool_ or answer.shape not in ((), (columns.points_asked,)):
            got = f"{answer.dtype}{list(answer.shape)}"
            hint = f"a rule answers with one truth value a point: bool[{columns.points_asked}]"
            raise BadTemplate(f"{self.place}: rule {self.name} gave {got}", hint)
        return np.broadcast_to(answer, (columns.points_asked,))


def rule(reason: str) -> Callable[[Callable[[Any, Limits, Problem], Any]], Rule]:
    """Decorator: a `Rule` of a function `(p, limits, problem)` that is True where a point is allowed."""
    return lambda allowed: Rule(allowed, reason)


@dataclass(frozen=True)
class Space:
    """Parameters and the rules over them."""

    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...] = ()
    models: Models | None = None
    """What the template says a point needs; the rules ask it, and strategies learn from it."""

    def __post_init__(self) -> None:
        names = [p.name for p in self.parameters]
        if len(set(names)) != len(names):
            raise BadTemplate("a parameter is declared twice", ", ".join(names))

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = ", ".join(p.name for p in self.parameters)
        raise UsageError(f"there is no parameter {name}", f"parameters: {known}")

    @property
    def size(self) -> int:
        """Points of the plain product, feasible or not."""
        return math.prod(len(p.values) for p in self.parameters)

    @property
    def default(self) -> Point:
        return {p.name: p.default for p in self.parameters}

    def parse(self, point: Mapping[str, object]) -> Point:
        """The point meant by `point`, complete and in the parameters' order. UsageError on a wrong one."""
        for name in point:
            self[name]
        missing = [p.name for p in self.parameters if p.name not in point]
        if missing:
            raise UsageError(f"point without {', '.join(missing)}", "a point has a value for every parameter")
        return {p.name: p.parse(point[p.name]) for p in self.parameters}

    def neighbours(self, point: Point) -> Iterator[Point]:
        """The points that differ in one parameter by one neighbour, feasible or not."""
        for parameter in self.parameters:
            for value in parameter.neighbours(point[parameter.name]):
                yield {**point, parameter.name: value}

    def why_not(self, point: Point, limits: Limits, problem: Problem) -> str | None:
        """The reason of the first rule that rejects `point`, or None where it is feasible."""
        columns = _Columns(self.parameters, self.indices_of(point)[None, :])
        for one in self.rules:
            if not one.mask(columns, limits, problem)[0]:
                return one.why(limits, problem)
        return None

    def feasible(self, limits: Limits, problem: Problem) -> FeasibleSet:
        """The points that the rules allow: all of them, or a sample where the product is too large."""
        if self.size <= ENUMERATED:
            chunks = (np.arange(i, min(i + _CHUNK, self.size)) for i in range(0, self.size, _CHUNK))
            return FeasibleSet.of(self, limits, problem, (self._unrank(c) for c in chunks), exact=True)
        rng = np.random.default_rng(0)  # always the same sample: a resumed study sees the same set
        return FeasibleSet.of(self, limits, problem, [self.draw(rng, SAMPLED)], exact=False)

    def draw(self, rng: np.random.Generator, count: int) -> Indices:
        """`count` points of the plain product, as indices (count, parameters)."""
        columns = [rng.integers(len(p.values), size=count, dtype=np.intp) for p in self.parameters]
        return np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.intp)

    def indices_of(self, point: Point) -> Indices:
        """The position of each value in its parameter's values: (parameters,)."""
        return np.array([p.position(point[p.name]) for p in self.parameters], np.intp)

    def point_at(self, row: Indices) -> Point:
        """The point of one row of indices."""
        return {p.name: p.values[int(i)] for p, i in zip(self.parameters, row, strict=True)}

    def sieve(self, rows: Indices, limits: Limits, problem: Problem) -> tuple[Indices, dict[str, int]]:
        """The rows that all rules allow, and how many each reason rejected (every reason, also with 0)."""
        rejected: dict[str, int] = {}
        columns = _Columns(self.parameters, rows)
        for one in self.rules:
            why = one.why(limits, problem)
            mask = one.mask(columns, limits, problem)
            rejected[why] = rejected.get(why, 0) + len(rows) - int(mask.sum())
            if not mask.all():
                rows = rows[mask]
                columns = _Columns(self.parameters, rows)
        return rows, rejected

    def columns(self, rows: Indices) -> Filling:
        """The points of `rows` of indices as columns: what rules and models get."""
        return _Columns(self.parameters, rows)

    def _unrank(self, ranks: Indices) -> Indices:
        """Mixed-radix digits of `ranks`, the last parameter fastest: (points, parameters)."""
        rows = np.empty((len(ranks), len(self.parameters)), np.intp)
        for i in reversed(range(len(self.parameters))):
            ranks, rows[:, i] = np.divmod(ranks, len(self.parameters[i].values))
        return rows


@dataclass(frozen=True)
class FeasibleSet:
    """The feasible points of a space for given limits and problem.

    `indices` has a row a point (n, parameters). `exact`: all points were asked; otherwise `count` and
    `rejected` are estimates from a sample of the product, and `indices` holds the sample's feasible points.
    """

    space: Space
    limits: Limits
    problem: Problem
    indices: Indices
    rejected: Mapping[str, int]
    exact: bool
    asked: int
    """Points that the rules were asked about."""

    @classmethod
    def of(
        cls, space: Space, limits: Limits, problem: Problem, chunks: Iterable[Indices], exact: bool
    ) -> FeasibleSet:
        """Sieves `chunks` of indices through the rules."""
        kept, rejected, asked = [], dict.fromkeys((r.why(limits, problem) for r in space.rules), 0), 0
        for chunk in chunks:
            rows, refused = space.sieve(chunk, limits, problem)
            kept.append(rows.astype(np.int16 if exact else np.intp, copy=False))
            asked += len(chunk)
            for why, count in refused.items():
                rejected[why] += count
        if not exact:
            rejected = {why: round(count / asked * space.size) for why, count in rejected.items()}
        return cls(space, limits, problem, np.concatenate(kept), rejected, exact, asked)

    @property
    def size(self) -> int:
        """Points of the plain product."""
        return self.space.size

    @property
    def count(self) -> int:
        """Feasible points: exact, or an estimate (see `exact`)."""
        return len(self.indices) if self.exact else round(len(self.indices) / self.asked * self.size)

    @property
    def points(self) -> Sequence[Point]:
        """Random access to the feasible points at hand, made when asked for."""
        return _Points(self.space, self.indices)

    def sample(self, rng: np.random.Generator) -> Point:
        """A feasible point, all equally likely. UsageError where there is none (or none was ever seen)."""
        if self.exact:
            self.require_some()
            return self.space.point_at(self.indices[int(rng.integers(len(self.indices)))])
        for _ in range(64):  # fresh draws, so that a search is not confined to the sample
            rows, _ = self.space.sieve(self.space.draw(rng, 256), self.limits, self.problem)
            if len(rows):
                return self.space.point_at(rows[0])
        self.require_some()  # feasible points are rarer than 1 in 16,384: fall back on those that were seen
        return self.space.point_at(self.indices[int(rng.integers(len(self.indices)))])

    def covering(self, rng: np.random.Generator, least: int) -> list[Point]:
        """A small sample, at least `least` points where there are so many, in which every two values of two
        parameters that occur together in some feasible point occur together (pairwise coverage).

        Greedy over a random pool of at most 20,000 feasible points, so that it stays fast."""
        self.require_some()
        rows = self.indices[rng.permutation(len(self.indices))[:20_000]].astype(np.int64)
        ids, base = [], 0
        for i, a in enumerate(self.space.parameters):  # one number for each pair of values
            for j, b in enumerate(self.space.parameters[:i]):
                ids.append(base + rows[:, i] * len(b.values) + rows[:, j])
                base += len(a.values) * len(b.values)
        pairs = np.stack(ids, axis=1) if ids else np.zeros((len(rows), 1), np.int64)
        missing = np.zeros(max(base, 1), bool)
        missing[pairs] = True
        chosen: list[int] = []
        while missing.any() and len(chosen) < len(rows):
            chosen.append(int(missing[pairs].sum(axis=1).argmax()))
            missing[pairs[chosen[-1]]] = False
        taken = set(chosen)
        chosen += [i for i in range(len(rows)) if i not in taken][: max(0, least - len(chosen))]
        return [self.space.point_at(rows[i]) for i in chosen]

    def contains(self, point: Point) -> bool:
        """Whether the rules allow `point` (asked anew: also right for points outside the sample)."""
        return self.space.why_not(point, self.limits, self.problem) is None

    def require_some(self) -> None:
        """UsageError, with the counts by reason, where no point is feasible."""
        if not len(self.indices):
            refused = sorted(self.rejected.items(), key=lambda item: -item[1])
            reasons = "; ".join(f"{count} × {why}" for why, count in refused if count)
            raise UsageError(f"no point is feasible: the rules reject all {self.size}", reasons)


@dataclass(frozen=True)
class _Points(Sequence[Point]):
    space: Space
    indices: Indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self.space.point_at(row) for row in self.indices[i]]
        return self.space.point_at(self.indices[i])


REGISTER_MODEL_LIMIT = 300
"""The register model is a model (Spearman 0.97 against ptxas): above this even its error does not save a
point; between 220 and this, ptxas decides."""


@dataclass(frozen=True)
class Models:
    """A template's models of what it needs, each `(p, problem) -> array`; None where it has none.

    `smem_bytes` a CTA, `threads` a CTA, `registers` a thread, `grid` (x, y, z), `cluster` CTAs a cluster.
    """

    needs: str
    smem_bytes: Callable[[Any, Problem], Any]
    threads: Callable[[Any, Problem], Any]
    registers: Callable[[Any, Problem], Any] | None = None
    grid: Callable[[Any, Problem], Any] | None = None
    cluster: Callable[[Any, Problem], Any] | None = None


def hardware_rules(models: Models) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """The rules that hold for every template: (asked before the template's own, asked after them).

    The instruction set comes first. The models come last: they need not make sense of points that the
    template's own rules refuse.
    """

    @rule(f"needs {models.needs} instructions, {{limits.instructions}} allowed")
    def instruction_set(_p: Any, limits: Limits, _problem: Problem) -> Any:
        return limits.allows(models.needs)

    @rule("more than {smem} of shared memory a CTA")
    def shared_memory(p: Any, limits: Limits, problem: Problem) -> Any:
        return np.asarray(models.smem_bytes(p, problem)) <= limits.smem_bytes

    @rule("more than {limits.gpu.threads_per_cta} threads a CTA")
    def threads(p: Any, limits: Limits, problem: Problem) -> Any:
        return np.asarray(models.threads(p, problem)) <= limits.gpu.threads_per_cta

    @rule(f"register model above {REGISTER_MODEL_LIMIT} a thread")
    def registers(p: Any, _limits: Limits, problem: Problem) -> Any:
        assert models.registers is not None
        return np.asarray(models.registers(p, problem)) <= REGISTER_MODEL_LIMIT

    @rule("grid beyond the launch limits (2^31 - 1, 65535, 65535)")
    def grid(p: Any, _limits: Limits, problem: Problem) -> Any:
        assert models.grid is not None
        x, y, z = (np.asarray(side) for side in models.grid(p, problem))
        return (x < 2**31) & (y <= 65535) & (z <= 65535)

    @rule("cluster of more than {limits.gpu.max_cluster} CTAs")
    def cluster(p: Any, limits: Limits, problem: Problem) -> Any:
        assert models.cluster is not None
        return np.asarray(models.cluster(p, problem)) <= limits.gpu.max_cluster

    optional = ((models.registers, registers), (models.grid, grid), (models.cluster, cluster))
    return (instruction_set,), (shared_memory, threads, *(r for model, r in optional if model is not None))


def smem_text(nbytes: int) -> str:
    """`99 KB` for 101376: shared-memory sizes as people name them."""
    return f"{nbytes // KIB} KB" if nbytes % KIB == 0 else f"{nbytes} bytes"
