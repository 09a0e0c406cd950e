"""What the templates of row kernels share: what an operation is, their space, their models and their launch.

A row kernel reduces each row of a matrix and mostly writes it back. Parameters that matter are those of QuACK
(github.com/Dao-AILab/quack, rmsnorm_config): threads of a row, rows of a CTA, width of a load, CTAs of a
cluster, what is kept of the row, and when weights are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evo.dtype import dtype_named
from evo.gpu import Gpu, Limits, arch_number
from evo.space import Filling, Parameter, Rule, Space
from evo.trial import Argument, BufferArg, LaunchConfig, Point, Problem, ScalarArg, Value

ELEMENTS = {"fp16": "Fp16", "bf16": "Bf16", "fp32": "Fp32"}
"""Storage type -> its type in row/chunk.cuh."""
LOAD_BYTES = 16
"""What one instruction moves at most."""
REGISTER_FILE = 65536
OTHER_REGISTERS = 20
"""What addresses, loops and sums take besides what is held, measured with ptxas 13.0."""
REACH = 24
"""Registers beyond the model that ptxas takes of most points, where it is free to."""
CACHING = ("usual", "l2", "streaming")


@dataclass(frozen=True)
class Operation:
    """What a task's kernels do with a row, as far as templates must know it."""

    buffers: tuple[str, ...]
    """The kernel's pointers."""
    scalars: tuple[ScalarArg, ...] = ()
    """Numbers after rows, columns and pitch."""
    streams: int = 1
    """Matrices that are read."""
    weights: int = 0
    """Vectors that all rows share."""
    floats: int = 1
    """Numbers of a thread's state."""
    online_floats: int = 1
    """The same where one pass makes all sums."""
    one_pass: bool = False
    """Whether one pass takes no more operations than two."""
    gap: int = 0
    """Elements between two rows."""
    holes: Mapping[str, Value] | None = None


class RowKernel:
    """A template of row kernels, in the names of the long form. A task gives `operation_of(problem)`."""

    NEEDS = "sm_80"
    ENTRY: str

    def __init__(self, operation_of: Any, parameters: tuple[Parameter, ...], writes: bool = True) -> None:
        """`writes`: whether rows are written, not only numbers of them."""
        self.operation_of = operation_of
        parameters = tuple(p for p in parameters if writes or p.name not in WRITING)
        self.names = {parameter.name for parameter in parameters}
        rules = (*self.rules(), *self.own_rules())
        self.SPACE = Space(parameters, rules, suited=self.suited)

    def suited(self, problem: Problem, limits: Limits) -> Point:
        """The point to begin with."""
        raise NotImplementedError

    def own_rules(self) -> tuple[Rule, ...]:
        """Rules of one template."""
        return ()

    # ---- what is computed from a point

    def threads(self, p: Any, _problem: Problem) -> Any:
        return p.threads * self.rows(p)

    def rows(self, p: Any) -> Any:
        """Rows of a CTA."""
        return self.value(p, "rows", 1)

    def cluster(self, p: Any, _problem: Problem) -> Any:
        return self.value(p, "cluster", 1)

    def value(self, p: Any, name: str, otherwise: Value) -> Any:
        """The column of a parameter that not every row kernel has."""
        return p[name] if name in self.names else otherwise

    def step(self, p: Any) -> Any:
        """Columns that all threads of a row take at once."""
        return p.threads * self.cluster(p, None) * p.vector  # type: ignore[arg-type]

    def exchange_bytes(self, p: Any, problem: Problem) -> Any:
        """sizeof(Team::Storage) of all rows of a CTA: two turns of a state a warp."""
        warps, operation = p.threads // 32 * self.cluster(p, problem), self.operation_of(problem)
        online = np.asarray(self.value(p, "passes", 2)) == 1
        return 2 * warps * self.rows(p) * np.where(online, operation.online_floats, operation.floats) * 4

    def smem_bytes(self, p: Any, problem: Problem) -> Any:
        return self.exchange_bytes(p, problem)

    def ctas(self, p: Any, problem: Problem, gpu: Gpu) -> int:
        """CTAs of a launch: one for each row, or as many as run at once."""
        cluster = int(self.cluster(p, problem))
        needed = -(-problem["rows"] // int(self.rows(p)))
        if p.grid == "persistent":
            needed = min(needed, max(1, gpu.sms * int(p.min_ctas) // cluster))
        return int(needed * cluster)

    def launch(self, p: Any, problem: Problem, gpu: Gpu) -> LaunchConfig:
        operation = self.operation_of(problem)
        numbers = (problem["rows"], problem["columns"], problem["columns"] + operation.gap)
        args: tuple[Argument, ...] = (
            *(BufferArg(name) for name in operation.buffers),
            *(ScalarArg(number, "i32") for number in numbers),
            *operation.scalars,
        )
        return LaunchConfig(
            grid=(self.ctas(p, problem, gpu), 1, 1),
            block=(int(self.threads(p, problem)), 1, 1),
            smem_bytes=int(self.smem_bytes(p, problem)),
            args=args,
            cluster=(int(self.cluster(p, problem)), 1, 1),
        )

    def derived(self, p: Any, problem: Problem) -> dict[str, Value]:
        holes = dict(self.operation_of(problem).holes or {})
        return {"element": ELEMENTS[problem.dtype], "smem_bytes": int(self.smem_bytes(p, problem)), **holes}

    def tiles(self, p: Any, _problem: Problem) -> tuple[int, ...]:
        """The gate looks around chunks and around what all threads take at once."""
        return (int(p.vector), int(self.step(p)))

    def supports(self, problem: Problem) -> str | None:
        return None if problem.dtype in ELEMENTS else f"storage type {problem.dtype}"

    def words(self, p: Any, problem: Problem) -> Any:
        """Registers of a chunk."""
        return -(-p.vector * dtype_named(problem.dtype).nbytes // 4)

    def register_cap(self, p: Any, problem: Problem) -> Any:
        """What `__launch_bounds__` leaves a thread: registers are allocated in units of 8."""
        return np.minimum(255, REGISTER_FILE // (self.threads(p, problem) * p.min_ctas) // 8 * 8)

    def registers(self, p: Any, problem: Problem) -> Any:
        """Registers a thread, a model that ptxas 13.0 stays below at most points."""
        raise NotImplementedError

    def reach(self, _p: Any, _problem: Problem) -> Any:
        """Registers a thread that ptxas takes beyond the model, where it is free to."""
        return REACH

    def registers_fit(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return self.registers(p, problem) <= self.register_cap(p, problem)

    # ---- rules

    def vectors_fit(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return p.vector * dtype_named(problem.dtype).nbytes <= LOAD_BYTES

    def vectors_align(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return (problem["columns"] % p.vector == 0) & (self.operation_of(problem).gap % p.vector == 0)

    def policies(self, p: Any, _limits: Limits, _problem: Problem) -> Any:
        return (p.vector > 1) | (np.asarray(self.value(p, "loads", "usual")) != "evict_last")

    def rows_of_a_cta(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        """Named barriers are 16, and rows that no thread has are idle threads."""
        rows = self.rows(p)
        few = (rows == 1) | (rows < 2 * problem["rows"])
        return few & ((p.threads == 32) | (rows <= 16)) & ((self.cluster(p, problem) == 1) | (rows == 1))

    def clusters(self, p: Any, limits: Limits, problem: Problem) -> Any:
        return (self.cluster(p, problem) == 1) | self.clusters_allowed(limits)

    def clusters_allowed(self, limits: Limits) -> bool:
        return arch_number(limits.instructions) >= arch_number("sm_90")

    def busy(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        """At least a quarter of the threads has a column."""
        return (p.threads == 32) & (self.cluster(p, problem) == 1) | (self.step(p) < 4 * problem["columns"])

    def loops(self, p: Any, limits: Limits, problem: Problem) -> Any:
        """A persistent grid has rows for a second turn."""
        ctas = limits.gpu.sms * p.min_ctas // self.cluster(p, problem)
        return (p.grid == "rows") | (problem["rows"] > ctas * self.rows(p))

    def ctas_fit(self, p: Any, limits: Limits, problem: Problem) -> Any:
        fit = limits.gpu.smem_per_sm // (self.smem_bytes(p, problem) + 1024) >= p.min_ctas
        return (p.min_ctas == 1) | (
            fit & (self.threads(p, problem) * p.min_ctas <= limits.gpu.threads_per_sm)
        )

    def capping(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        """Of a grid of all rows min_ctas is nothing but a cap of registers."""
        near = self.registers(p, problem) + self.reach(p, problem) > self.register_cap(p, problem)
        return (p.min_ctas == 1) | (p.grid == "persistent") | near

    def rules(self) -> tuple[Rule, ...]:
        """Those of every row kernel."""
        return (
            Rule(self.vectors_fit, "a chunk of more than 16 bytes"),
            Rule(self.vectors_align, "chunks that do not divide the {problem[columns]} columns, or the gap"),
            Rule(self.policies, "single elements are loaded without a policy of the L2 cache"),
            Rule(self.clusters, "a cluster needs sm_90, {limits.instructions} allowed"),
            Rule(self.rows_of_a_cta, "more rows a CTA than barriers or rows, or in a cluster"),
            Rule(self.busy, "most threads have none of the {problem[columns]} columns"),
            Rule(self.loops, "a persistent grid without rows for a second turn"),
            Rule(self.registers_fit, "register model above the cap of __launch_bounds__"),
            Rule(self.capping, "min_ctas that caps registers far above what the model needs"),
            Rule(self.ctas_fit, "min_ctas CTAs exceed an SM's threads or shared memory"),
        )

    # ---- what is sensible for a size

    def lowered(self, chosen: Mapping[str, Value], name: str, problem: Problem) -> Point:
        """The whole point of `chosen` values, with as little of `name` as registers ask for."""
        values = sorted(self.SPACE[name].values)
        while True:
            point = {p.name: chosen.get(p.name, p.default) for p in self.SPACE.parameters}
            p = Filling(point)
            at = values.index(point[name])
            if at == 0 or self.registers(p, problem) <= self.register_cap(p, problem):
                return point
            chosen = {**chosen, name: values[at - 1]}

    def widest(self, problem: Problem) -> int:
        """The widest vector that divides columns and gap."""
        fits = LOAD_BYTES // dtype_named(problem.dtype).nbytes
        gap = self.operation_of(problem).gap
        return max(v for v in (1, 2, 4, 8) if v <= fits and problem["columns"] % v == gap % v == 0)


def at_most(values: tuple[int, ...], wanted: float) -> int:
    """The largest of the values that is not above what is wanted; else the smallest."""
    return max([v for v in values if v <= wanted] or [min(values)])


def at_least(values: tuple[int, ...], wanted: float) -> int:
    """The smallest of the values that is not below what is wanted; else the largest."""
    return min([v for v in values if v >= wanted] or [max(values)])


THREADS = (32, 64, 128, 256, 512, 1024)
ROWS = (1, 2, 4, 8, 16, 32)
VECTORS = (1, 2, 4, 8)

COMMON = (
    Parameter("threads", THREADS, 256, layer="macro", meaning="threads of a CTA that share a row",
              expected="few have many loads in flight each; many are quick where rows are few"),
    Parameter("rows", ROWS, 1, layer="macro", meaning="rows of a CTA",
              expected="more than one where a row is short: CTAs of 128 threads and more fill an SM"),
    Parameter("vector", VECTORS, 8, meaning="elements of one load",
              expected="16 bytes, unless the columns are odd"),
    Parameter("grid", ("rows", "persistent"), "rows", off="rows",
              meaning="CTAs for all rows, or as many as run at once, each with several rows",
              expected="persistent: weights are loaded once, and the next row while one is summed up"),
    Parameter("min_ctas", (1, 2, 4, 8), 1,
              meaning="CTAs an SM that registers are capped for; of a persistent grid, those that there are",
              expected="more CTAs keep more loads in flight, until registers spill"),
    Parameter("loads", (*CACHING, "evict_last"), "usual", off="usual",
              meaning="how rows are read: as usual, past L1, to leave the caches first, or to leave L2 last",
              expected="evict_last where rows do not fit L2: what is written leaves it instead"),
    Parameter("stores", CACHING, "streaming", off="usual",
              meaning="how rows are written: as usual, past L1, or as the first to leave the caches",
              expected="streaming: what is not read again makes room for what is"),
)  # fmt: skip
"""Parameters of every row kernel."""

WRITING = ("stores", "order")
"""Parameters of kernels that write rows."""
WEIGHTS = Parameter(
    "weights", ("late", "early", "once"), "early", off="late",
    meaning="when weights are loaded: a chunk ahead of use, with the row, or once for all rows of a thread",
    expected="early hides their latency behind the row's; late saves registers",
)  # fmt: skip


PASSES = Parameter(
    "passes", (1, 2), 2, off=2,
    meaning="passes over a row for its sums: one, or two of which the second knows what the first found",
    expected="one where a row is read again for each pass; two where it is at hand, for fewer operations",
)  # fmt: skip
PASS = replace(PASSES, default=1)
"""The same, where a second pass reads the row again."""
