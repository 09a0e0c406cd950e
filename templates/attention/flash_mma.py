"""FlashAttention forward on `mma.sync` (sm_80 and up): register-resident scores, probabilities and output.

After "FlashAttention-2" (Dao, 2023) and "Online normalizer calculation for softmax" (Milakov and Gimelshein,
2018). Groups of warps may share the keys of one CTA (`kv_split`): at short sequences there are not enough
query tiles to fill a GPU, so the keys are where parallelism is left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits, arch_number
from evo.space import Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import LaunchConfig, Problem, Value

call = load_module(Path(__file__).with_name("call.py"))

NEEDS = "sm_80"
ENTRY = "flash_mma"


REGISTER_FILE = 65536
SPILL_SLACK = 24
"""Registers that the model may exceed a cap by. Against ptxas 13.0 it errs by about this much; a little
spilling outside the loop costs less than a wrong rejection."""
REACH = 48
"""Registers beyond the model that ptxas takes at most where it is free to."""


def parts(p: Any) -> Any:
    """Groups of warps that share the keys of one query tile."""
    return p.kv_split * p.cta_split


def row_bytes(p: Any, problem: Problem) -> Any:
    """Bytes of a row of a tile in shared memory, with its padding."""
    return problem["D"] * 2 + where(p.swizzle == "pad", 16, 0)


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): operands, or what takes their place at the end."""
    row = row_bytes(p, problem)
    q = p.bm * row
    rings = p.kv_split * (p.k_stages + p.v_stages) * p.bn * row
    beside = where((p.q_path == "shared") | (p.q_path == "registers"), q, 0)
    operands = where(p.q_path == "reuse", where(q > rings, q, rings), rings + beside)
    shares = parts(p)
    exchange = p.kv_split * (shares - 1) * p.bm * (problem["D"] // shares) * 4 + shares * p.bm * 8
    results = where(shares > 1, exchange, 0) + where(p.epilogue == "shared", q, 0)
    return where(p.cta_split > 1, operands + results, where(operands > results, operands, results))


def threads(p: Any, _problem: Problem) -> Any:
    return p.warps * p.kv_split * 32


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread: output, scores, probabilities and Q of a warp's rows, and what addresses take."""
    blocks = p.bm / (16 * p.warps)
    q = where(p.q_path == "shared", 4, problem["D"] / 4)
    return blocks * (problem["D"] / 2 + p.bn / 2 + p.bn / 4 + q) + 32


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    m, heads = -(-problem["L"] // p.bm), problem["B"] * problem["H"]
    m_on_x = p.grid_order == "m_fastest"
    return where(m_on_x, m, heads) * p.cta_split, where(m_on_x, heads, m), 1


def cluster(p: Any, _problem: Problem) -> Any:
    return p.cta_split


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    return dict(call.holes(problem, int(smem_bytes(p, problem))))


def launch(p: Any, problem: Problem, _gpu: Gpu) -> LaunchConfig:
    x, y, z = grid(p, problem)
    return LaunchConfig(
        grid=(int(x), int(y), z),
        block=(int(threads(p, problem)), 1, 1),
        smem_bytes=int(smem_bytes(p, problem)),
        args=call.arguments(problem),
        cluster=(int(p.cta_split), 1, 1),
    )


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    """Boundaries lie at multiples of the tiles, and where all key groups have taken one tile."""
    return tuple(sorted({int(p.bm), int(p.bn), int(p.bn * parts(p))}))


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is."""
    reason: str | None = call.serves(problem)
    return reason


def register_cap(p: Any, problem: Problem) -> Any:
    """What `__launch_bounds__` leaves a thread: registers are allocated in units of 8."""
    return np.minimum(255, REGISTER_FILE // (threads(p, problem) * p.min_ctas) // 8 * 8)


@rule("warps that do not divide the query tile into blocks of 16 rows")
def whole_blocks(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bm % (16 * p.warps) == 0


@rule("a split over CTAs needs a cluster (sm_90), {limits.instructions} allowed")
def clusters(p: Any, limits: Limits, _problem: Problem) -> Any:
    return (p.cta_split == 1) | (arch_number(limits.instructions) >= arch_number("sm_90"))


@rule("the {problem[D]} columns of the output do not divide among all groups")
def whole_shares(p: Any, _limits: Limits, problem: Problem) -> Any:
    return problem["D"] // 8 % parts(p) == 0


@rule("V ring deeper than the K ring, although K is needed first")
def keys_first(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.v_stages <= p.k_stages


@rule("query tile longer than the {problem[L]} queries")
def tile_of_queries(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.bm <= max(64, problem["L"])


@rule("key tiles of the groups longer together than the {problem[L]} keys")
def tile_of_keys(p: Any, _limits: Limits, problem: Problem) -> Any:
    return p.bn * parts(p) <= max(64, problem["L"])


@rule("more K stages than a group has key tiles")
def useful_stages(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.k_stages - 1) * p.bn * parts(p) < max(128, problem["L"])


@rule("heavy tiles first, but without a causal mask all tiles weigh the same")
def heavy_tiles(p: Any, _limits: Limits, problem: Problem) -> Any:
    return bool(problem["causal"]) | (p.grid_order != "heavy_first")


@rule("min_ctas that caps registers far above what the model needs: nothing is capped")
def capping(p: Any, _limits: Limits, problem: Problem) -> Any:
    caps = threads(p, problem) * p.min_ctas * 255 > REGISTER_FILE
    near = registers(p, problem) + REACH > register_cap(p, problem)
    return (p.min_ctas == 1) | (caps & near)


@rule("min_ctas CTAs exceed an SM's threads or shared memory")
def ctas_fit(p: Any, limits: Limits, problem: Problem) -> Any:
    fits = limits.gpu.smem_per_sm // (smem_bytes(p, problem) + 1024) >= p.min_ctas
    return (p.min_ctas == 1) | (fits & (threads(p, problem) * p.min_ctas <= limits.gpu.threads_per_sm))


@rule("register model above the cap of __launch_bounds__")
def registers_fit(p: Any, _limits: Limits, problem: Problem) -> Any:
    return registers(p, problem) <= register_cap(p, problem) + SPILL_SLACK


SPACE = Space(
    parameters=(
        Parameter(
            "bm", (16, 32, 64, 128), 64, layer="macro",
            meaning="queries a CTA",
            expected="large tiles read K and V less often; small ones fill a GPU at short sequences",
        ),
        Parameter(
            "bn", (16, 32, 48, 64, 96, 128, 192, 256), 64, layer="macro",
            meaning="keys a tile",
            expected="long tiles mean fewer barriers and rescalings, but registers for more scores",
        ),
        Parameter(
            "warps", (1, 2, 4, 8), 4, layer="macro",
            meaning="warps over the rows of a query tile",
            expected="two blocks of 16 rows a warp load each K and V fragment half as often",
        ),
        Parameter(
            "kv_split", (1, 2, 4, 8), 1, layer="macro", off=1,
            meaning="groups of warps that share the keys of a CTA and join their results at the end",
            expected="1.2x to 1.3x where there are fewer query tiles than SMs", worth=(1.2, 1.3),
        ),
        Parameter(
            "cta_split", (1, 2), 1, layer="macro", off=1,
            meaning="CTAs that share the keys as a cluster and join through distributed shared memory",
            expected="as kv_split, and each CTA loads half of K and V; costs a cluster barrier",
        ),
        Parameter("k_stages", (1, 2, 3, 4), 2, off=1, meaning="tiles in the ring of K",
                  expected="hides the latency of loading K behind the work on earlier tiles"),
        Parameter("v_stages", (1, 2), 1, off=1, meaning="tiles in the ring of V",
                  expected="little with 2 over 1: V is loaded while the scores are computed"),
        Parameter("swizzle", ("xor", "pad", "none"), "xor", off="none",
                  meaning="how rows are laid out in shared memory",
                  expected="up to 4x over none: ldmatrix without bank conflicts", worth=(1.0, 4.0)),
        Parameter(
            "q_path", ("direct", "registers", "shared", "reuse"), "direct", off="shared",
            meaning="Q straight into registers; there through shared memory; re-read from shared memory for "
            "every tile; into registers through memory that K takes over",
            expected="registers save ldmatrix, shared saves registers, direct and reuse save shared memory",
        ),
        Parameter("rescale", ("always", "lazy"), "always", off="always",
                  meaning="rescale the output at every tile, or only when a maximum has grown by 2^8",
                  expected="a few percent: the products with the correction factor disappear",
                  worth=(1.02, 1.05)),
        Parameter("epilogue", ("direct", "shared"), "direct", off="direct",
                  meaning="output straight to global memory, or through shared memory, 16 bytes a store",
                  expected="full-width stores against one more pass through shared memory"),
        Parameter("grid_order", ("m_fastest", "head_fastest", "heavy_first"), "m_fastest", off="m_fastest",
                  meaning="which CTAs run next to each other; heavy_first: the longest causal rows lead",
                  expected="m_fastest: K and V stay in L2; heavy_first: no long CTA at the end"),
        Parameter("min_ctas", (1, 2, 3), 1, off=1, meaning="CTAs an SM that registers are capped for",
                  expected="one CTA computes while the other waits, if nothing spills"),
    ),
    rules=(
        whole_blocks, clusters, whole_shares, keys_first, tile_of_queries, tile_of_keys, useful_stages,
        heavy_tiles, capping, ctas_fit, registers_fit,
    ),
)  # fmt: skip
