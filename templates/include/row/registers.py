"""row_registers: a row lives in the registers of the threads that share it, in one CTA or in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evo.dtype import dtype_named
from evo.gpu import Limits
from evo.space import Parameter, Rule
from evo.task import load_module
from evo.trial import Point, Problem

kernels = load_module(Path(__file__).with_name("kernels.py"))

STEPS = (1, 2, 3, 4, 6, 8, 12, 16)
CLUSTERS = (1, 2, 4, 8)
FEW_WEIGHTS = 4
"""Chunks of weights that a thread holds while it sums up; more take the registers of other CTAs."""
HELD_BYTES = 128
"""Of a row, what a thread holds at the default: 8 loads in flight, and room for a second CTA."""

OWN = (
    Parameter("steps", STEPS, 4, layer="macro", meaning="loads of a thread and row",
              expected="2 to 8 keep the memory busy; above 8 registers limit the CTAs of an SM"),
    Parameter("cluster", CLUSTERS, 1, layer="macro", off=1, meaning="CTAs that share a row",
              expected="for rows of 32 thousand columns on, or where there are fewer rows than SMs"),
    Parameter("ahead", (0, 1), 0, off=0, meaning="rows that are loaded ahead into more registers",
              expected="a persistent grid reads on while it sums up"),
)  # fmt: skip


class Registers(kernels.RowKernel):  # type: ignore[name-defined, misc]
    ENTRY = "row_registers"

    def __init__(self, operation_of: Any, weights: bool, passes: bool = False, writes: bool = True) -> None:
        """`weights`: whether the operation has any; `passes`: whether it may take one pass or two."""
        more = (*((kernels.WEIGHTS,) if weights else ()), *((kernels.PASSES,) if passes else ()))
        parameters = (*kernels.COMMON[:3], *OWN, *kernels.COMMON[3:], *more)
        super().__init__(operation_of, parameters, writes)

    def registers(self, p: Any, problem: Problem) -> Any:
        """Registers a thread: chunks of the row, of the next one and of the weights, and one as floats."""
        operation = self.operation_of(problem)
        when = self.value(p, "weights", "late")
        kept = operation.streams * (1 + p.ahead) + operation.weights * (when != "late")
        return p.steps * self.words(p, problem) * kept + 2 * p.vector + kernels.OTHER_REGISTERS

    def reach(self, p: Any, _problem: Problem) -> Any:
        """One more for each chunk: 380 points of all tasks, ptxas 13.0 for sm_80 and sm_90a."""
        return kernels.REACH + p.steps

    def holds(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return self.step(p) * p.steps >= problem["columns"]

    def used(self, p: Any, _limits: Limits, problem: Problem) -> Any:
        return (p.steps == 1) | (self.step(p) * p.steps < 4 * problem["columns"])

    def turns(self, p: Any, _limits: Limits, _problem: Problem) -> Any:
        again = (p.ahead == 1) | (self.value(p, "weights", "late") == "once")
        return ~again | (p.grid == "persistent")

    def own_rules(self) -> tuple[Rule, ...]:
        return (
            Rule(self.holds, "the threads do not hold {problem[columns]} columns"),
            Rule(self.used, "registers for four times the {problem[columns]} columns"),
            Rule(self.turns, "loads for a next row, but every CTA has one row"),
        )

    def suited(self, problem: Problem, limits: Limits) -> Point:
        """The point to begin with. Where there are rows enough for all SMs, 2 loads a thread and more threads
        for longer rows, up to 512: on an H200 more loads a thread, or more rows a CTA, took up to 4 % longer.
        Where there are not, as few loads as 1024 threads allow. Rows of one CTA that do not fit the L2 cache
        with what is written leave it last: 4 % less at 32,768 x 16,384 on an H200."""
        vector, columns = self.widest(problem), problem["columns"]
        streams = self.operation_of(problem).streams
        nbytes = dtype_named(problem.dtype).nbytes
        chunks = -(-columns // vector)
        few, keeps = problem["rows"] < limits.gpu.sms, "stores" in self.names
        held = max(1, min(8, kernels.at_most(STEPS, HELD_BYTES // (vector * nbytes * streams))))
        most = held if keeps or few else STEPS[-1]
        wanted = chunks if few else chunks / (2 * streams)
        threads = kernels.at_least(kernels.THREADS[: 6 if few else 5], wanted)
        clusters = CLUSTERS if self.clusters_allowed(limits) else (1,)
        cluster = kernels.at_least(clusters, chunks / (threads * (2 if few else most)))
        while threads < 1024 and cluster * threads * most < chunks:
            threads *= 2
        steps = kernels.at_least(STEPS, chunks / (threads * cluster))
        rows = 1
        while rows * threads < 64 and cluster == 1 and rows * limits.gpu.sms < problem["rows"]:
            rows *= 2
        chosen = {"threads": threads, "rows": rows, "vector": vector, "steps": steps, "cluster": cluster}
        held_weights = steps * self.operation_of(problem).weights
        if "weights" in self.names and (held_weights > FEW_WEIGHTS or (not few and threads > 256)):
            chosen["weights"] = "late"
        if "passes" in self.names and (not keeps or self.operation_of(problem).one_pass):
            chosen["passes"] = 1  # what is read once need not be held
        moved = problem["rows"] * columns * nbytes * 2 * streams
        if "stores" in self.names and cluster == 1 < vector and moved > limits.gpu.l2_bytes:
            chosen["loads"] = "evict_last"
        found: Point = self.lowered(chosen, "min_ctas", problem)
        return found
