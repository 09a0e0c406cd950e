"""Rows of a leaderboard: CONFIRMED, measured in a search alone, and an estimate."""

from __future__ import annotations

from dataclasses import replace

from evo.store import LeaderboardRow
from evo.trial import InputTime, Interval, Point, Problem

PROBLEM = Problem("attention", {"B": 1, "H": 8, "L": 512, "D": 64}, "fp16", {"causal": False})
POINT: Point = {
    "bm": 64,
    "bn": 128,
    "warps": 4,
    "swizzle": "xor",
    "persistent": True,
    "k_stages": 2,
    "v_stages": 1,
}
MEASURED = LeaderboardRow(
    trial=7,
    study="mission-1",
    number=6,
    template="flash_mma",
    problem=PROBLEM.key,
    device="NVIDIA H200",
    outcome="TIMED",
    point=POINT,
    median_us=8.531,
    low_us=8.512,
    high_us=8.549,
    baselines_us={"flash": 10.27, "cudnn": 9.1},
    speedup=1.0667,
    speedup_low=1.062,
    speedup_high=1.071,
    estimate_us=None,
    estimate_gpu="",
    registers=168,
    spill_bytes=0,
    smem_bytes=49152,
    worst_error=4.1e-4,
    rank=1,
    versus="cudnn",
    on="normal",
    ranking="worst",
    times={
        "normal": InputTime(
            8.531,
            Interval(8.512, 8.549),
            1.0667,
            Interval(1.062, 1.071),
            "cudnn",
            {"flash": 10.27, "cudnn": 9.1},
        )
    },
    timing_inputs=1,
)
CONFIRMED = replace(
    MEASURED,
    kind="confirmed",
    level=0.99,
    versus="triton",
    verdict="faster",
    cold_us=9.02,
    search_us=8.4,
)
ESTIMATED = replace(
    MEASURED,
    trial=8,
    number=7,
    device="emulator (L4)",
    outcome="GREEN",
    median_us=None,
    low_us=None,
    high_us=None,
    baselines_us={},
    speedup=None,
    speedup_low=None,
    speedup_high=None,
    estimate_us=31.4,
    estimate_gpu="L4",
    kind="estimate",
    versus=None,
    on="",
    ranking="",
    times={},
    timing_inputs=0,
)
