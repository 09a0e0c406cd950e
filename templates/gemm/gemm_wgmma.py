"""The product on Hopper: TMA, wgmma, a producer and 1 to 3 consumers that share a tile or take turns.

After CUTLASS's "warp-specialised persistent" kernels, cooperative and ping-pong (github.com/NVIDIA/cutlass,
its documentation of efficient GEMM): a ring of tiles between one producer and its consumers, an epilogue by
TMA store that runs beside products: of the other consumer, in turns; else of the next tile, where registers
hold C meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evo.gpu import Gpu, Limits
from evo.space import AUTO, Parameter, Space, rule, where
from evo.task import load_module
from evo.trial import BufferArg, LaunchConfig, Point, Problem, ScalarArg, TensorMapArg, Value, Workspace

call = load_module(Path(__file__).with_name("call.py"))
filling = load_module(Path(__file__).with_name("filling.py"))
tile = load_module(Path(__file__).with_name("wgmma_tiles.py"))
join = load_module(Path(__file__).parents[1] / "include" / "gemm" / "join.py")

NEEDS = "sm_90a"
ENTRY = "gemm_wgmma"

smem_bytes, threads, grid, cluster = tile.smem_bytes, tile.threads, tile.grid, tile.cluster


@rule("turns are taken by 2 or 3 consumers, with tiles of their own to take")
def turns(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.schedule == "cooperative") | ((p.consumers >= 2) & p.persistent)


@rule("a register split is made for 2 or 3 consumers and one CTA an SM")
def register_split(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.producer == "warp") | ((p.consumers >= 2) & (p.min_ctas == 1))


@rule("tiles of more than 256 rows")
def boxes_of_rows(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return tile.bm(p) <= 256


@rule("columns of B side by side come in blocks of 64")
def whole_blocks(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (problem["layout"] == "NT") | (p.bn % tile.BLOCK_COLUMNS == 0)


@rule("a CTA's half of the shared operand is not whole blocks or swizzle patterns")
def whole_halves(p: Any, _limits: Limits, problem: Problem) -> Any:
    of_b = 16 if problem["layout"] == "NT" else 2 * tile.BLOCK_COLUMNS
    of_a = 2 * tile.BLOCK_COLUMNS if problem["layout"] == "TN" else 16
    halves_of_b = (p.multicast != "b") | (p.bn % of_b == 0)
    return halves_of_b & ((p.multicast != "a") | (tile.bm(p) % of_a == 0))


@rule("a cluster's second tile would be empty")
def busy_clusters(p: Any, _limits: Limits, problem: Problem) -> Any:
    below = (p.multicast != "b") | (problem["M"] > tile.bm(p))
    return below & ((p.multicast != "a") | (problem["N"] > p.bn))


@rule("the TMA epilogue stores boxes that divide a tile, to rows of whole 16 bytes")
def boxes_of_c(p: Any, _limits: Limits, problem: Problem) -> Any:
    aligned = call.vectors(problem)[2] * call.out_bytes(problem) >= 16
    return ~tile.by_tma(p) | ((p.bn % tile.box_columns(p, problem) == 0) & aligned)


@rule("parts of K that a cluster joins are stored directly: epilogue=tma is for those that are split by auto")
def stored_by_parts(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return (p.epilogue == "direct") | tile.by_tma(p) | p.says_auto("splits")


@rule("most of a tile is outside of C")
def busy_tiles(p: Any, _limits: Limits, problem: Problem) -> Any:
    tall = (tile.bm(p) == tile.GROUP_ROWS) | (tile.bm(p) < 2 * problem["M"])
    return tall & ((p.bn <= tile.BLOCK_COLUMNS) | (p.bn < 2 * problem["N"]))


@rule("no stage is free while so many are multiplied")
def free_stages(p: Any, _limits: Limits, _problem: Problem) -> Any:
    return p.stages > p.in_flight


@rule("parts of K of less than two tiles")
def busy_splits(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.splits == 1) | (2 * p.splits <= call.ceil_div(problem["K"], p.bk))


@rule("K is split although tiles fill the GPU twice")
def needed_splits(p: Any, limits: Limits, problem: Problem) -> Any:
    ctas = tile.whole_tiles(p, problem) * tile.cluster(p, problem)
    return (p.splits == 1) | (ctas < 2 * limits.gpu.sms * p.min_ctas)


@rule("parts of K join in a cluster that shares one tile, through its rings, in shares of whole blocks")
def joined_in_cluster(p: Any, _limits: Limits, _problem: Problem) -> Any:
    alone = (p.multicast == "none") & (p.schedule == "cooperative") & ~p.persistent
    fits = (4 * tile.bm(p) * p.bn <= tile.ring_bytes(p)) & (p.bn // 8 % p.splits == 0)
    return (p.join == "workspace") | (alone & where(p.splits > 1, fits, p.says_auto("splits")))


@rule("tiles of 64 terms are twice as many")
def deep_tiles(p: Any, _limits: Limits, problem: Problem) -> Any:
    return (p.bk == 64) | (problem["K"] > 64)


@rule("as many CTAs fit as there are tiles: nothing to persist for")
def enough_to_persist(p: Any, limits: Limits, problem: Problem) -> Any:
    return ~p.persistent | (tile.clusters(p, problem) > tile.resident(p, limits.gpu))


@rule("a panel as wide as C, in either direction, is the same order")
def narrow_panels(p: Any, _limits: Limits, problem: Problem) -> Any:
    down = call.ceil_div(problem["M"], tile.bm(p) * where(p.multicast == "b", 2, 1))
    across = call.ceil_div(problem["N"], p.bn * where(p.multicast == "a", 2, 1))
    width = where(p.raster == "m", down, across)
    return (p.panel == 1) | (p.panel < 2 * width)


@rule("sums need more registers than a consumer has")
def sums_in_registers(p: Any, _limits: Limits, problem: Problem) -> Any:
    fits = p.rows * p.bn // 2 + tile.OVERHEAD <= tile.register_cap(p, problem)
    at_entry = tile.REGISTER_FILE // tile.threads(p, problem) // 8 * 8
    return fits & ((p.producer == "warp") | (p.bn // 2 + tile.OPERANDS <= at_entry))


@rule("registers allow that many CTAs an SM without a cap")
def binding_cap(p: Any, _limits: Limits, problem: Problem) -> Any:
    besides = where(p.splits == 1, tile.OVERHEAD, tile.REACH)
    free = p.rows * p.bn // 2 + besides <= tile.register_cap(p, problem)
    return (p.min_ctas == 1) | p.persistent | ~free  # a persistent grid is made for min_ctas an SM


@rule("shared memory holds fewer CTAs than registers are capped for")
def resident_ctas(p: Any, limits: Limits, problem: Problem) -> Any:
    return p.min_ctas * (tile.smem_bytes(p, problem) + 1024) <= limits.gpu.smem_per_sm


PARAMETERS = (
    Parameter(
        "schedule", ("cooperative", "pingpong"), "cooperative", "macro", off="cooperative",
        meaning="consumers share a tile's rows, or take tiles in turns",
        expected="pingpong hides the epilogue: a few percent, most where K is short",
    ),
    Parameter("consumers", (1, 2, 3), 1, "macro", meaning="warpgroups that multiply", expected="mostly 2"),
    Parameter(
        "rows", (1, 2, 3), 1, "macro", meaning="times 64 rows of a tile that a consumer has",
        expected="2 with 128 columns; 3 for very large products",
    ),
    Parameter(
        "bn", filling.WIDTHS, 64, "macro", meaning="columns of a tile",
        expected="those whose tiles fill whole waves",
    ),
    Parameter("bk", (64, 128), 64, "macro", meaning="terms of a stage", expected="128 halves the waits"),
    Parameter(
        "stages", filling.STAGES[::-1], 2, "macro", most=tile.stages_of_use,
        meaning="tiles of A and B, copied ahead; no more than a CTA ever needs",
        expected="as many as fit",
    ),
    Parameter(
        "in_flight", (1, 2), 1, "macro", off=1,
        meaning="stages whose products may be under way when those of the next are issued",
        expected="2 for small tiles, whose products end sooner than the next are issued",
    ),
    Parameter(
        "producer", ("warp", "warpgroup"), "warp", "macro", off="warp",
        meaning="what copies: a warp, or a warpgroup that gives consumers its registers",
    ),
    Parameter(
        "multicast", ("none", "a", "b"), "none", "macro", off="none",
        meaning="the operand that two CTAs of neighbouring tiles copy once for both",
        expected="less traffic from L2, and CTAs that wait for each other",
    ),
    Parameter(
        "persistent", (False, True), False, "macro", off=False,
        meaning="one wave of CTAs that take tile after tile",
        expected="hides barrier set-up, the first copies and the epilogue",
    ),
    Parameter(
        "raster", (AUTO, "m", "n"), AUTO, auto=tile.shorter_side,
        meaning="whether panels are so many rows or columns of tiles; auto: along the shorter side tiles are "
        "taken first",
        expected="auto, mostly: a wave has few rows of tiles and few columns, so its operands stay in L2",
    ),
    Parameter(
        "panel", (1, 4, 8), 1, off=1, meaning="tiles of a panel's side: those run together and share L2",
        expected="8: A and B of a wave stay in L2",
    ),
    Parameter(
        "epilogue", ("direct", "tma"), "direct", off="direct",
        meaning="stores of 4 or 8 bytes a lane, or by TMA from shared memory",
        expected="tma: whole lines, and it runs beside the next tile",
    ),
    Parameter(
        "splits", (AUTO, 1, 2, 4, 8), AUTO, "macro", off=1, auto=tile.parts_in_a_wave,
        meaning="parts of K, whose sums are joined in their order; auto: as many as fill the SMs once",
        expected="where tiles are fewer than SMs",
    ),
    Parameter(
        "join", ("workspace", "cluster"), "workspace", "macro",
        meaning="whether the part that is ready last joins them from global memory, or CTAs of a cluster do "
        "from each other's shared memory",
        expected="cluster: no way through L2, but the parts wait for each other",
    ),
    Parameter("min_ctas", (1, 2), 1, "macro", off=1, meaning="CTAs an SM that registers are capped for"),
)  # fmt: skip


def supports(problem: Problem) -> str | None:
    """Why a problem is out of reach, if it is: TMA wants rows of whole 16 bytes."""
    if min(call.vectors(problem)[:2]) < call.ALIGNED:
        return "rows of A or B that are no multiples of 16 bytes"
    reason: str | None = call.serves(problem)
    return reason


# ---- what is sensible for a size


def suited(problem: Problem, limits: Limits) -> Point:
    """The point to begin with: the way of computing the product that takes fewest clocks by a model."""
    default = {**SPACE.default, "splits": 1}
    for values in filling.fastest_first(problem, limits):
        for panel in dict.fromkeys((values["panel"], 1)):
            for stages in (n for n in filling.STAGES if n <= values["stages"]):
                point = {**default, **values, "panel": panel, "stages": stages}
                point = SPACE.with_auto(point, problem, limits.gpu)
                if point["join"] == "cluster" and point["splits"] == AUTO:
                    point["epilogue"] = "tma"
                if _feasible(point, limits, problem):
                    return point
    return SPACE.default


def _feasible(point: Point, limits: Limits, problem: Problem) -> bool:
    """Whether all rules, and the shared memory, allow the point."""
    values = SPACE.filling(point, problem, limits.gpu)
    return (
        bool(tile.smem_bytes(values, problem) <= limits.smem_bytes)
        and SPACE.why_not(point, limits, problem) is None
    )


RULES = (
    boxes_of_rows, deep_tiles, register_split, sums_in_registers, whole_blocks, whole_halves, busy_clusters,
    busy_tiles, turns, busy_splits, needed_splits, joined_in_cluster, binding_cap, boxes_of_c,
    stored_by_parts, resident_ctas, enough_to_persist, free_stages, narrow_panels,
)  # fmt: skip
"""Those first that look at few parameters, and refuse much: what they leave is built up for the others."""
SPACE = Space(PARAMETERS, RULES, suited=suited)


def tiles(p: Any, _problem: Problem) -> tuple[int, ...]:
    return int(tile.bm(p)), p.bn, p.bk


def derived(p: Any, problem: Problem) -> dict[str, Value]:
    given, taken = tile.REGISTER_SPLITS.get(p.consumers, (0, 0))
    return {
        "late": tile.leaves_late(p, problem),
        "producer_registers": given,
        "consumer_registers": taken,
        "box_columns": int(tile.box_columns(p, problem)),
        "by_tma": bool(tile.by_tma(p)),
        "by_grid": tile.by_grid(p, problem),
        "even_rows": problem["N"] % 2 == 0,
        **call.holes(problem, int(tile.smem_bytes(p, problem))),
        **call.layout(problem),
    }


def operand_map(p: Any, problem: Problem, name: str) -> TensorMapArg:
    """Boxes of 64 columns of A or B as they are stored: the terms, or the rows of A or columns of B, of a
    tile; half of them where two CTAs copy for each other."""
    which = "ab".index(name)
    (rows, columns), leading = call.stored(problem)[which], call.leading(problem)[which]
    along_k = problem["layout"][which] == "NT"[which]
    across = (tile.bm(p), p.bn)[which] // (2 if p.multicast == name else 1)
    box = (tile.BLOCK_COLUMNS, int(across if along_k else p.bk), 1)
    strides = (2 * leading, 2 * leading * rows)
    return TensorMapArg(name, problem.dtype, (columns, rows, problem["batch"]), strides, box, swizzle=128)


def launch(p: Any, problem: Problem, gpu: Gpu) -> LaunchConfig:
    m, n, batch, nbytes = problem["M"], problem["N"], problem["batch"], call.out_bytes(problem)
    out: BufferArg | TensorMapArg = BufferArg("c")
    if tile.by_tma(p):
        kind = problem.dtype if nbytes == 2 else "fp32"
        box = (int(tile.box_columns(p, problem)), tile.WARP_ROWS, 1)
        row = box[0] * nbytes
        swizzle = row if row in (tile.BLOCK_BYTES, tile.BLOCK_BYTES // 2) else 0
        out = TensorMapArg("c", kind, (n, m, batch), (nbytes * n, nbytes * n * m), box, swizzle=swizzle)
    extra = call.operand(problem)
    places = int(tile.clusters(p, problem) * tile.cluster(p, problem))  # tiles of C times parts of K
    joined: tuple[Workspace, ...] = ()
    if p.splits > 1 and p.join == "workspace":
        joined = join.workspaces(places, tile.bm(p) * p.bn, places // p.splits * p.consumers)
    return LaunchConfig(
        grid=tile.launched(p, problem, gpu),
        block=(int(tile.threads(p, problem)), 1, 1),
        smem_bytes=int(tile.smem_bytes(p, problem)),
        cluster=(int(tile.cluster(p, problem)), 1, 1),
        args=(
            operand_map(p, problem, "a"),
            operand_map(p, problem, "b"),
            out,
            *((BufferArg(extra),) if extra else ()),
            *(BufferArg(workspace.name) for workspace in joined),
            *(ScalarArg(number, "i32") for number in (m, n, problem["K"], batch)),
        ),
        workspaces=joined,
    )
