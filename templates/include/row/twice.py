"""row_twice: a row is read for its sums, and again for what is written. It serves any length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evo.gpu import Limits
from evo.space import Parameter
from evo.task import load_module
from evo.trial import Point, Problem

kernels = load_module(Path(__file__).with_name("kernels.py"))

WARPS = 32
"""CTAs of one warp that an SM has at once."""

OWN = (
    Parameter("unroll", (1, 2, 4, 8), 4, layer="macro", off=1, meaning="loads of a thread at once",
              expected="4 and 8 keep the memory busy with few CTAs"),
    Parameter("cluster", (1, 2, 4, 8), 1, layer="macro", off=1, meaning="CTAs that share a row",
              expected="where there are fewer rows than SMs"),
    Parameter("order", ("backward", "forward"), "backward", off="forward",
              meaning="how a row is read again: from its end, which the caches still hold, or from its start",
              expected="backward, where a row does not fit the caches"),
)  # fmt: skip


class Twice(kernels.RowKernel):  # type: ignore[name-defined, misc]
    ENTRY = "row_twice"

    def __init__(self, operation_of: Any, passes: bool = False, writes: bool = True) -> None:
        """`passes`: whether the operation may take one pass or two."""
        more = (kernels.PASS,) if passes else ()
        super().__init__(operation_of, (*kernels.COMMON[:3], *OWN, *kernels.COMMON[3:], *more), writes)

    def registers(self, p: Any, problem: Problem) -> Any:
        """The chunks that are loaded at once, with their addresses, and what every kernel needs."""
        return p.unroll * (self.words(p, problem) * self.operation_of(problem).streams + 4) + 36

    def suited(self, problem: Problem, limits: Limits) -> Point:
        """One chunk or more a thread and turn, as many CTAs as there are SMs where rows are few. Of rows that
        are read once each warp has its own, where there are enough: no warp waits for another."""
        vector = self.widest(problem)
        chunks = -(-problem["columns"] // vector)
        few = problem["rows"] < limits.gpu.sms
        if "stores" not in self.names and problem["rows"] >= WARPS * limits.gpu.sms:
            alone: Point = self.lowered({"threads": 32, "vector": vector, "unroll": 2}, "unroll", problem)
            return alone
        threads = kernels.at_least(kernels.THREADS, min(1024 if few else 512, chunks / (1 if few else 4)))
        cluster = 8 if few and self.clusters_allowed(limits) and chunks >= 4 * 8 * threads else 1
        unroll = kernels.at_most((1, 2, 4, 8), chunks / (threads * cluster))
        rows = 1
        while rows * threads < 128 and cluster == 1 and rows * limits.gpu.sms < problem["rows"]:
            rows *= 2
        chosen = {"threads": threads, "rows": rows, "vector": vector, "unroll": unroll, "cluster": cluster}
        found: Point = self.lowered(chosen, "unroll", problem)
        return found
