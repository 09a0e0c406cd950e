"""FAST: how long a GREEN kernel takes on a GPU, beside the baselines, in one process."""

from evo.timing.baselines import capture_baselines, time_variants
from evo.timing.inputs import ranking_named, timing_inputs
from evo.timing.session import Ready, TimingSession
from evo.timing.statistics import (
    bootstrap_median,
    bootstrap_ratio,
    clear_loser,
    drifted,
    median_interval,
    settled,
)
from evo.timing.stopwatch import TimingSettings, launches_per_replay

__all__ = [
    "Ready",
    "TimingSession",
    "TimingSettings",
    "bootstrap_median",
    "bootstrap_ratio",
    "capture_baselines",
    "clear_loser",
    "drifted",
    "launches_per_replay",
    "median_interval",
    "ranking_named",
    "settled",
    "time_variants",
    "timing_inputs",
]
