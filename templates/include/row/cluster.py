"""row_cluster: the CTAs of a cluster keep a row in their shared memory (sm_90), some rows ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evo.dtype import dtype_named
from evo.gpu import KIB, Limits
from evo.space import Parameter, Rule
from evo.task import load_module
from evo.trial import Point, Problem, Value

kernels = load_module(Path(__file__).with_name("kernels.py"))

ROOMS = (2, 4, 8, 16, 32, 64, 96, 128, 192)
CLUSTERS = (1, 2, 4, 8)

COMMON = {parameter.name: parameter for parameter in kernels.COMMON}
PARAMETERS = (
    COMMON["threads"],
    Parameter("cluster", CLUSTERS, 1, layer="macro", off=1, meaning="CTAs that share a row",
              expected="as many as make room for two rows an SM"),
    COMMON["vector"],
    Parameter("room", ROOMS, 8, layer="macro", meaning="KB of a CTA's part of a row",
              expected="the least that holds it"),
    Parameter("stages", (1, 2, 3), 1, layer="macro", off=1, meaning="rows in shared memory at once",
              expected="2 or 3 in a persistent grid: the next rows arrive while one is summed up"),
    Parameter("copies", ("bulk", "threads"), "bulk",
              meaning="one thread starts bulk copies, or each thread copies what it reads itself (cp.async)",
              expected="bulk takes no instructions of the other threads"),
    Parameter("pieces", (1, 2, 4), 1, off=1, meaning="bulk copies of a part, each with a barrier",
              expected="the first pieces are summed up while the last ones arrive"),
    Parameter("unroll", (1, 2, 4, 8), 4, off=1, meaning="chunks of a thread at once",
              expected="hides the latency of shared memory"),
    COMMON["grid"], COMMON["min_ctas"], COMMON["stores"],
)  # fmt: skip


class Cluster(kernels.RowKernel):  # type: ignore[name-defined, misc]
    NEEDS = "sm_90"
    ENTRY = "row_cluster"

    def __init__(self, operation_of: Any, passes: bool = False, writes: bool = True) -> None:
        """`passes`: whether the operation may take one pass or two."""
        super().__init__(operation_of, (*PARAMETERS, *((kernels.PASSES,) if passes else ())), writes)

    def elements(self, p: Any, problem: Problem) -> Any:
        """Elements of a CTA's part of a row, at most."""
        return p.room * KIB // dtype_named(problem.dtype).nbytes

    def smem_bytes(self, p: Any, problem: Problem) -> Any:
        """sizeof(SharedStorage): rows, barriers, and what warps tell each other; a multiple of 16."""
        streams = self.operation_of(problem).streams
        exchange = self.exchange_bytes(p, problem)
        return -(-(self.parts_bytes(p, streams) + exchange) // 16) * 16

    def parts_bytes(self, p: Any, streams: int) -> Any:
        """sizeof(RowParts)."""
        return -(-(p.stages * (streams * p.room * KIB + 8 * p.pieces)) // 16) * 16

    def derived(self, p: Any, problem: Problem) -> dict[str, Value]:
        return {**super().derived(p, problem), "elements": int(self.elements(p, problem))}

    def part(self, p: Any, problem: Problem) -> Any:
        """Columns of a CTA."""
        unit = kernels.LOAD_BYTES // dtype_named(problem.dtype).nbytes
        return -(-problem["columns"] // (unit * p.cluster)) * unit

    def fits(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return self.part(p, problem) <= self.elements(p, problem)

    def used(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return (p.room == ROOMS[0]) | (self.elements(p, problem) < 4 * self.part(p, problem))

    def pieces_are_whole(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return self.elements(p, problem) % (p.pieces * p.threads * p.vector) == 0

    def steps_are_granules(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        bytes_of_a_chunk = p.vector * dtype_named(problem.dtype).nbytes
        return (p.copies == "bulk") | ((bytes_of_a_chunk == kernels.LOAD_BYTES) & (p.pieces == 1))

    def turns(self, p: Any, _limits: Limits, _problem: Problem) -> Any:
        return (p.stages == 1) | (p.grid == "persistent")

    def sixteen(self, _p: Any, _limits: Limits, problem: Problem) -> Any:
        unit = kernels.LOAD_BYTES // dtype_named(problem.dtype).nbytes
        return problem["columns"] % unit == self.operation_of(problem).gap % unit == 0

    def own_rules(self) -> tuple[Rule, ...]:
        return (
            Rule(self.sixteen, "rows of {problem[columns]} columns do not begin at multiples of 16 bytes"),
            Rule(self.fits, "no room for the {problem[columns]} columns"),
            Rule(self.used, "room for four times the {problem[columns]} columns"),
            Rule(self.pieces_are_whole, "pieces that are no whole steps of the threads"),
            Rule(self.steps_are_granules, "copies by threads are of 16 bytes, in one piece"),
            Rule(self.turns, "rows ahead, but every CTA has one row"),
        )

    def supports(self, problem: Problem) -> str | None:
        reason: str | None = super().supports(problem)
        if reason is None and not self.sixteen(None, None, problem):
            return f"rows of {problem['columns']} columns do not begin at multiples of 16 bytes"
        return reason

    def registers(self, p: Any, problem: Problem) -> Any:
        """The chunks that are read at once, and what every kernel needs."""
        return p.unroll * (self.words(p, problem) * self.operation_of(problem).streams + 2) + 42

    def suited(self, problem: Problem, limits: Limits) -> Point:
        """Where there are rows enough for all SMs, parts of at most 64 KB that threads copy themselves, 8
        chunks each: on an H200 that took 3 to 28 % less than a persistent grid with rows ahead, but for rows
        of 32 KB. For few rows as many CTAs as a cluster may have, with 4 KB and more each."""
        nbytes = dtype_named(problem.dtype).nbytes
        row_kb = problem["columns"] * nbytes / KIB
        few = problem["rows"] < limits.gpu.sms
        cluster = kernels.at_least(CLUSTERS, row_kb / (4 if few else 64))
        room = kernels.at_least(ROOMS, row_kb / cluster)
        vector = kernels.LOAD_BYTES // nbytes
        chunks = problem["columns"] / cluster / vector
        threads = kernels.at_most(kernels.THREADS, min(512, chunks if few else chunks / 8))
        chosen: dict[str, Value] = {"threads": threads, "cluster": cluster, "vector": vector, "room": room}
        if not few:
            chosen |= {"copies": "threads", "unroll": 2}
        if "passes" in self.names and self.operation_of(problem).one_pass:
            chosen["passes"] = 1
        found: Point = self.lowered(chosen, "unroll", problem)
        return found
