"""Attention on Hopper, from 1024 keys on: TMA, wgmma, a producer warp and 1 to 4 consumers.

After "FlashAttention-3" (Shah, Bikshandi, Zhang, Thakkar, Ramani and Dao, 2024): a ring of K and V tiles
between one producer and its consumers, products beside softmax inside a warpgroup and between warpgroups.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu import Gpu, Limits
from evo.space import Filling, Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import BufferArg, LaunchConfig, Point, Problem, ScalarArg, TensorMapArg, Value

call = load_module(Path(__file__).with_name("call.py"))

NEEDS = "sm_90a"
ENTRY = "flash_wgmma"

QUARTER_FILE = 16384
"""Registers of each of the four schedulers of an SM, among which warps are dealt out in turn."""
REGISTER_SPLITS = {2: (40, 232), 3: (32, 160), 4: (32, 112)}
"""Registers a thread of the producer's warpgroup and of the consumers', by the number of consumers: in
eights, together no more than the CTA was launched with. A kernel that asks for more waits forever."""
OVERHEAD = 28
"""Registers a consumer needs besides scores, probabilities and output. Against ptxas 13.0: with less it
spills and serialises the wgmmas, with more it rarely does."""
REACH = 48
"""Registers besides these that ptxas takes where it is free to."""
BLOCK_COLUMNS = 64
"""16-bit columns of a row of 128 bytes, the widest that a swizzled copy moves."""


def consumers(p: Any) -> Any:
    return p.row_groups * p.key_groups


def smem_bytes(p: Any, problem: Problem) -> Any:
    """sizeof(SharedStorage): Q, the rings of K and V, what key groups exchange, barriers."""
    row = 2 * problem["D"]
    operands = p.query_stages * p.row_groups * 64 * row + 2 * p.stages * p.bn * row
    parts = p.key_groups * p.cluster_kv
    message = 128 * (problem["D"] // 8 // parts * where(p.message == "full", 16, 8) + 8)
    join = consumers(p) * (parts - 1) * message
    barriers = 8 * (2 * p.query_stages * p.row_groups + 4 * p.stages) + where(p.cluster_kv > 1, 24, 0)
    return call.ceil_div(operands + join + barriers, 1024) * 1024


def threads(p: Any, _problem: Problem) -> Any:
    return consumers(p) * 128 + where(p.producer == "warp", 32, where(p.producer == "consumer", 0, 128))


def score_registers(p: Any, problem: Problem) -> Any:
    """Registers a thread of scores, output, and probabilities: all of these where they outlive the scores."""
    return p.bn // 2 + problem["D"] // 2 + where(p.overlap == "none", p.bn // 8, p.bn // 4)


def register_cap(p: Any, problem: Problem) -> Any:
    """Registers a thread that a consumer can have."""
    warps = call.ceil_div(p.min_ctas * threads(p, problem), 128)
    even = np.minimum(255, QUARTER_FILE // (32 * warps) // 8 * 8)
    split = where(consumers(p) == 3, REGISTER_SPLITS[3][1], REGISTER_SPLITS[4][1])
    split = where(consumers(p) == 2, REGISTER_SPLITS[2][1], split)
    return where(p.producer == "warpgroup", split, even)


def registers(p: Any, problem: Problem) -> Any:
    """Registers a thread of the launch: for two thirds of 1,926 points ptxas took within 8 of this."""
    launched = QUARTER_FILE // (32 * call.ceil_div(threads(p, problem), 128)) // 8 * 8
    free = np.minimum(register_cap(p, problem), score_registers(p, problem) + OVERHEAD)
    return where(p.producer == "warpgroup", launched, free)


def query_tiles(p: Any, problem: Problem) -> Any:
    """Query tiles of all heads; those that a cluster takes together count once."""
    return call.ceil_div(problem["L"], 64 * p.row_groups * p.cluster_m) * call.heads(problem)


def resident(p: Any, gpu: Gpu) -> Any:
    """Clusters that the GPU runs at once, if registers and shared memory allow what `min_ctas` asks for."""
    return gpu.sms * p.min_ctas // (p.cluster_m * p.cluster_kv)


def grid(p: Any, problem: Problem) -> tuple[Any, Any, Any]:
    """One CTA a query tile and share of the keys: the most that is launched."""
    return query_tiles(p, problem) * cluster(p, problem), 1, 1


def ctas(p: Any, problem: Problem, gpu: Gpu) -> int:
    """CTAs of the launch: with `persistent` no more than the GPU runs at once."""
    tiles = query_tiles(p, problem)
    launched = where(p.persistent, np.minimum(tiles, resident(p, gpu)), tiles)
    return int(launched * cluster(p, problem))


def cluster(p: Any, _problem: Problem) -> Any:
    return p.cluster_m * p.cluster_kv


@rule("more than 4 consumers")
def few_consumers(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return consumers(p) <= 4


@rule("a register split is made for 2 to 4 consumers and one CTA an SM")
def register_split(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.producer != "warpgroup") | ((consumers(p) >= 2) & (p.min_ctas == 1))


@rule("a consumer that copies beside its work keeps to one query tile, and to its own CTA")
def copying_consumer(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.producer != "consumer") | (~p.persistent & (p.cluster_m == 1))


@rule("a cluster's part of a tile is not whole swizzle patterns of 8 rows")
def whole_parts(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.bn % (8 * p.cluster_m) == 0


@rule("query tiles of a cluster without queries at length {problem[L]}")
def busy_clusters(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.cluster_m == 1) | (64 * p.row_groups * (p.cluster_m - 1) < problem["L"])


@rule("a cluster along the queries and along the keys at once")
def one_cluster(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.cluster_m == 1) | (p.cluster_kv == 1)


@rule("row groups without queries at length {problem[L]}")
def busy_row_groups(p: Any, _limits: Limits, problem: Problem) -> Any:
    return 64 * (p.row_groups - 1) < problem["L"]


@rule("stages, key groups or CTAs without keys at length {problem[L]}")
def busy_stages(p: Any, _limits: Limits, problem: Problem) -> Any:
    tiles = call.ceil_div(problem["L"], p.bn * p.cluster_kv)
    return ((p.stages == 2) | (p.stages <= tiles)) & (p.key_groups <= tiles)


@rule("stages that key groups would use in turn: each has to see every phase of a barrier")
def own_stages(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.stages % p.key_groups == 0


@rule("a consumer that copies would wait for the tile that only it can ask for")
def copied_ahead(p: Any, _limits: Limits, _problem: Problem) -> Any:
    """With overlap it starts on the next keys before it gives their place away."""
    return (p.producer != "consumer") | (p.overlap == "none") | (p.stages >= 2 * p.key_groups)


@rule("a second place for queries where no query tile follows")
def queries_to_come(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.query_stages == 1) | p.persistent


@rule("an order of the keys where every tile's maximum is taken, or of no more than two tiles")
def order_that_counts(p: Any, _limits: Limits, problem: Problem) -> Any:
    tiles = call.ceil_div(problem["L"], p.bn * p.cluster_kv)
    return (p.key_order == "ascending") | ((p.rescale != "always") & (tiles > 2))


@rule("a consumer copies tiles of keys as they come")
def copied_in_order(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.producer != "consumer") | (p.key_order == "ascending")


@rule("messages of a single part")
def messages(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.key_groups * p.cluster_kv > 1) | (p.message == "full")


@rule("turns are taken by two or more consumers")
def turns(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.overlap != "turns") | (consumers(p) >= 2)


@rule("the TMA epilogue stores whole rows: nobody shares their keys")
def whole_rows(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.epilogue != "tma") | (p.key_groups * p.cluster_kv == 1)


@rule("a polynomial does not say that a score was too large for the maximum that was guessed")
def overflowing_exponentials(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.rescale != "late") | (p.polynomials == 0)


@rule("longest first without a causal mask")
def longest_of_different(p: Any, _limits: Limits, problem: Problem) -> Any:
    return ~p.longest_first | bool(problem["causal"])


@rule("as many CTAs fit as there are query tiles: nothing to persist for")
def enough_to_persist(p: Any, limits: Limits, problem: Problem) -> Any:
    return ~p.persistent | (query_tiles(p, problem) > resident(p, limits.gpu))


@rule("scores, probabilities and output need more registers than a consumer has")
def scores_in_registers(p: Any, _limits: Limits, problem: Problem) -> Any:
    return score_registers(p, problem) + OVERHEAD <= register_cap(p, problem)


@rule("registers allow that many CTAs an SM without a cap")
def binding_cap(p: Any, _limits: Limits, problem: Problem) -> Any:
    free = score_registers(p, problem) + REACH <= register_cap(p, problem)
    return (p.min_ctas == 1) | p.persistent | ~free  # a persistent grid is made for min_ctas an SM


@rule("shared memory holds fewer CTAs than registers are capped for")
def resident_ctas(p: Any, limits: Limits, problem: Problem) -> Any:
    return p.min_ctas * (smem_bytes(p, problem) + 1024) <= limits.gpu.smem_per_sm


PARAMETERS = (
    Parameter(
        "row_groups", (1, 2, 3, 4), 2, "macro",
        meaning="consumers with 64 queries each: they share every tile of K and V",
        expected="3 or 4 once query tiles fill the GPU, whichever fills its last wave; 1 for small ones",
    ),
    Parameter(
        "key_groups", (1, 2, 4), 1, "macro", off=1,
        meaning="consumers that share the keys of the same queries",
        expected="as many as make four consumers on every SM, where query tiles alone are too few",
    ),
    Parameter(
        "bn", (48, 64, 80, 128, 176), 128, "macro",
        meaning="keys a tile",
        expected="large ones amortise waits; registers end it: up to 176",
    ),
    Parameter(
        "stages", (2, 3, 4, 8), 2, "macro",
        meaning="tiles of K, and of V, that the producer copies ahead into",
    ),
    Parameter(
        "query_stages", (1, 2), 1, off=1,
        meaning="query tiles in shared memory: with 2, a persistent CTA copies the next one ahead",
        expected="2 where a query tile sees few tiles of keys and shared memory has room",
    ),
    Parameter(
        "key_order", ("ascending", "halving"), "ascending", off="ascending",
        meaning="tiles of keys as they come; or the first, the last, the middle, the quarters, ...; those "
        "under the mask at the end",
        expected="halving where scores change along the keys: a row's maximum then moves seldom",
    ),
    Parameter(
        "cluster_m", (1, 2), 1, "macro", off=1,
        meaning="CTAs of neighbouring queries that copy each tile of K and V once for all of them",
        expected="less traffic from L2; pays for long sequences at best",
    ),
    Parameter(
        "cluster_kv", (1, 2), 1, "macro", off=1,
        meaning="CTAs that share the keys of the same queries and join through distributed shared memory",
        expected="query tiles twice as high for as many SMs: half of the traffic from L2",
    ),
    Parameter(
        "message", ("full", "half"), "full", off="full",
        meaning="shares of the output that parts hand over are fp32, or of the storage type",
        expected="half: of two CTAs with 256 queries each sends 16 KB less, at 14 bytes a clock",
    ),
    Parameter(
        "producer", ("warp", "warpgroup", "consumer"), "warpgroup", "macro", off="warp",
        meaning="what copies: a warp, a warpgroup that gives consumers its registers, or a consumer",
        expected="warpgroup; consumer where CTAs share an SM and a fifth warp costs registers",
    ),
    Parameter(
        "overlap", ("none", "values", "turns"), "values", "macro", off="none",
        meaning="what softmax runs beside: nothing of its warpgroup, its own P V of the tile before, "
        "or that and, by taking turns, the products of the other consumers",
        expected="at D=64 exponentials cost as much as products: without overlap half of the peak",
    ),
    Parameter(
        "rescale", ("always", "lazy", "late"), "lazy", off="always",
        meaning="the output is rescaled at every tile; once a maximum has grown by 2^8; or the first "
        "tile's maximum stands, until a tile adds too much to the sums: then all is scaled down",
        expected="late saves an eighth of the time at D=64: maxima take two issue slots a score",
    ),
    Parameter(
        "polynomials", (0, 1), 0, off=0,
        meaning="of eight exponentials, how many are computed by the multiply-add pipe",
        expected="relieves the special-function unit, which takes 16 a clock; costs ten others each",
    ),
    Parameter(
        "epilogue", ("direct", "wide", "tma"), "direct", off="direct",
        meaning="stores of 4 bytes a lane; of 16 after lanes swapped columns; or by TMA from Q's place",
    ),
    Parameter(
        "grid_order", ("m_fastest", "head_fastest"), "m_fastest",
        meaning="what neighbouring CTAs share: the head (its K and V stay in L2), or the query tile",
    ),
    Parameter(
        "longest_first", (False, True), False, off=False,
        meaning="causal: the last queries, which see the most keys, start first",
        expected="evens out the end of the grid",
    ),
    Parameter(
        "persistent", (False, True), False, off=False,
        meaning="one wave of CTAs that take query tile after query tile, dealt out back and forth",
        expected="hides barrier set-up and the first copies, most where long and short ones pair up",
    ),
    Parameter(
        "min_ctas", (1, 2, 3), 1, "macro", off=1,
        meaning="CTAs an SM that registers are capped for",
        expected="2 small CTAs overlap each other without taking turns",
    ),
)  # fmt: skip
RULES = (
    few_consumers, register_split, copying_consumer, whole_parts, one_cluster, busy_clusters,
    busy_row_groups, busy_stages, own_stages, copied_ahead, queries_to_come, order_that_counts,
    copied_in_order, messages, turns, whole_rows, overflowing_exponentials, longest_of_different,
    enough_to_persist, scores_in_registers, binding_cap, resident_ctas,
)  # fmt: skip
GROUPS = {64: (4, 64), 128: (2, 128)}
"""Row groups and keys a tile that were best on an H200 for many query tiles, by the head dimension."""
MANY = {False: 0.9, True: 2}
"""Query tiles an SM from which on they are many: under a causal mask a long and a short one make a pair."""


def suited(problem: Problem, limits: Limits) -> Point:
    """The point to begin with. With many query tiles of 64 or 128 columns what was best for them on an H200:
    maxima are guessed, consumers take turns, and a CTA stays and copies the next query tile ahead. Under a
    causal mask the longest query tiles of all heads come first: the tiles of keys are dealt out equally. With
    fewer, two share the keys of 64 queries, as in points that were good at 1,024 and 2,048 keys; if these
    leave SMs idle, the default."""
    causal, (groups, bn) = bool(problem["causal"]), GROUPS.get(problem["D"], (2, 64))
    first = {"grid_order": "head_fastest", "longest_first": True} if causal else {"key_order": "halving"}
    turns = {"rescale": "late", "overlap": "turns", "row_groups": groups, "bn": bn, **first}
    shared = {**turns, "epilogue": "wide", "message": "half", "key_order": "halving"}
    chosen: list[dict[str, Value]] = [
        {**turns, "epilogue": "tma", "persistent": True, "query_stages": 2},
        {**turns, "epilogue": "wide", "persistent": True},
        {**turns, "epilogue": "tma"},
        {**shared, "row_groups": 2, "key_groups": 2, "stages": 8},
        {**shared, "cluster_kv": 2},
    ]
    few: dict[str, Value] = {**shared, "row_groups": 1, "grid_order": "head_fastest"}
    few |= {"bn": 128, "stages": 4, "key_groups": 2}
    if causal:
        few |= {"bn": 64, "stages": 3, "key_groups": 1, "cluster_kv": 2}
        few |= {"producer": "warp", "overlap": "values"}
    tries = [(MANY[causal], {"stages": n, **values}) for n, values in itertools.product((4, 3, 2), chosen)]
    space = Space(PARAMETERS, RULES)
    for tiles_an_sm, values in (*tries, (MANY[False], few)):
        p = Filling(point := space.completed(values))
        busy = grid(p, problem)[0] >= tiles_an_sm * limits.gpu.sms
        fits = smem_bytes(p, problem) <= limits.smem_bytes
        if busy and fits and space.why_not(point, limits, problem) is None:
            return point
    return space.default


SPACE = Space(PARAMETERS, RULES, suited=suited)


def supports(problem: Problem) -> Any:
    """Why a problem is out of reach, if it is: tiles of wgmma are of whole blocks of 64 columns here."""
    return call.serves(problem, call.WGMMA_HEAD_DIMS)


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    return 64 * p.row_groups, p.bn


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    given, taken = REGISTER_SPLITS.get(consumers(p), (0, 0))
    split = {"producer_registers": given, "consumer_registers": taken}
    return {**split, **call.holes(problem, int(smem_bytes(p, problem)))}


def tensor_map(buffer: str, rows: int, blocks: int, problem: Problem) -> TensorMapArg:
    """Boxes of `rows` rows and `blocks` blocks of one head: (heads, L, D) as (heads, D / 64, L, 64), so that
    64 columns are as wide as the swizzle, and rows beyond L are outside the tensor."""
    length, d, heads = problem["L"], problem["D"], call.heads(problem)
    return TensorMapArg(
        buffer, problem.dtype, (BLOCK_COLUMNS, length, d // BLOCK_COLUMNS, heads),
        (2 * d, 2 * BLOCK_COLUMNS, 2 * d * length), (BLOCK_COLUMNS, rows, blocks, 1), swizzle=128,
    )  # fmt: skip


def launch(p: Any, problem: Problem, gpu: Gpu) -> LaunchConfig:
    blocks = problem["D"] // BLOCK_COLUMNS
    part, parts = int(p.bn // p.cluster_m), blocks if p.cluster_m == 1 else 1
    return LaunchConfig(
        grid=(ctas(p, problem, gpu), 1, 1),
        block=(int(threads(p, problem)), 1, 1),
        smem_bytes=int(smem_bytes(p, problem)),
        cluster=(int(cluster(p, problem)), 1, 1),
        args=(
            tensor_map("q", 64, blocks, problem),
            *(tensor_map(buffer, part, parts, problem) for buffer in "kv"),
            tensor_map("o", 64, blocks, problem),
            BufferArg("o"),
            ScalarArg(call.heads(problem), "i32"),
            *call.scalars(problem),
        ),
    )
