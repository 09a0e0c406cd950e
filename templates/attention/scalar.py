"""Attention without Tensor Cores: fp32 dot products and online softmax, one team of threads a row of queries.

The starting point of every ladder. `loop_order` and `state` are the choices in which hand-written versions of
such a kernel differ; `state = registers` with few lanes a row is where they spill.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import LaunchConfig, Problem, Value

call = load_module(Path(__file__).with_name("call.py"))

NEEDS = "sm_80"
ENTRY = "scalar"


REGISTER_FILE = 65536
SPILL_SLACK = 24
"""Registers that the model may exceed a cap by: the model errs by about this much."""


def tiles_in_work(p: Any) -> Any:
    """Query tiles that a CTA has begun and not finished."""
    return where(p.loop_order == "kv_outer", p.q_tiles, 1)


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): a tile of K, a tile of V and, where it lives there, Q and the output in fp32."""
    state = where(p.state == "shared", tiles_in_work(p) * p.bm * problem["D"] * 8, 0)
    return 2 * p.bn * problem["D"] * 2 + state


def threads(p: Any, _problem: Problem) -> Any:
    return p.threads


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: its share of Q and the output of every tile in work, scores, and addresses."""
    share = problem["D"] * p.bm / p.threads
    held = where(p.state == "registers", tiles_in_work(p) * 2 * share, 0)
    return held + 2 * p.step + p.vector + 32


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    return -(-problem["L"] // (p.bm * p.q_tiles)), problem["B"] * problem["H"], 1


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    return dict(call.holes(problem, int(smem_bytes(p, problem))))


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    x, y, z = grid(p, problem)
    return LaunchConfig(
        grid=(int(x), int(y), z),
        block=(int(p.threads), 1, 1),
        smem_bytes=int(smem_bytes(p, problem)),
        args=call.arguments(problem),
    )


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    """Boundaries lie at multiples of the tiles and of what a CTA takes."""
    return tuple(sorted({int(p.bm), int(p.bn), int(p.bm * p.q_tiles)}))


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is."""
    reason: str | None = call.serves(problem)
    return reason


@rule("threads that do not divide into one team a row, within a warp")
def teams(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.threads % p.bm == 0) & (p.threads <= 32 * p.bm)


@rule("a thread's share of the {problem[D]} columns is no whole number of loads")
def whole_loads(p: Any, _limits: Limits, problem: Problem) -> Any:
    return problem["D"] % (p.vector * (p.threads // p.bm)) == 0


@rule("both loop orders are the same program with one query tile a CTA")
def loops_differ(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.loop_order == "q_outer") | (p.q_tiles > 1)


@rule("query tiles of a CTA longer than the {problem[L]} queries")
def tile_of_queries(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.bm * p.q_tiles <= max(32, problem["L"])


@rule("key tile longer than the {problem[L]} keys")
def tile_of_keys(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.bn <= max(32, problem["L"])


@rule("register model above the cap of __launch_bounds__")
def registers_fit(p: Any, _limits: Limits, problem: Problem) -> Any:
    return registers(p, problem) <= np.minimum(255, REGISTER_FILE // p.threads) + SPILL_SLACK


SPACE = Space(
    parameters=(
        Parameter("bm", (8, 16, 32, 64, 128), 32, layer="macro", meaning="queries a query tile",
                  expected="with threads, sets how many lanes share a row"),
        Parameter("bn", (8, 16, 32, 64, 128), 32, layer="macro", meaning="keys a key tile",
                  expected="longer tiles mean fewer barriers"),
        Parameter("threads", (32, 64, 128, 256), 128, layer="macro", meaning="threads a CTA",
                  expected="threads / bm lanes share a row: fewer registers each, more shuffles"),
        Parameter("loop_order", ("q_outer", "kv_outer"), "q_outer", layer="macro", off="q_outer",
                  meaning="each query tile walks over all keys, or each key tile serves all query tiles",
                  expected="kv_outer loads K and V once for q_tiles tiles, and holds their state"),
        Parameter("state", ("registers", "shared"), "registers", layer="macro", off="shared",
                  meaning="where a thread keeps its share of Q and the output",
                  expected="registers are faster until they spill"),
        Parameter("q_tiles", (1, 2, 4), 1, off=1, meaning="query tiles a CTA",
                  expected="worth it with kv_outer at long sequences only"),
        Parameter("step", (1, 2, 4, 8), 4, off=1, meaning="keys that are rescaled for together",
                  expected="fewer rescalings of the output; independent dot products"),
        Parameter("vector", (1, 2, 4, 8), 8, off=1, meaning="elements a load",
                  expected="8 (16 bytes): an eighth of the load instructions of 1"),
    ),
    rules=(teams, whole_loads, loops_differ, tile_of_queries, tile_of_keys, registers_fit),
)  # fmt: skip
