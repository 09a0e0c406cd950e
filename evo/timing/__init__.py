"""FAST: how long a GREEN kernel takes on a GPU, beside the baselines, in one process."""

from evo.timing.session import Ready, TimingSession, capture_baselines, time_variants
from evo.timing.statistics import bootstrap_median, bootstrap_ratio, clear_loser, median_interval, settled
from evo.timing.stopwatch import TimingSettings, launches_per_replay

__all__ = [
    "Ready",
    "TimingSession",
    "TimingSettings",
    "bootstrap_median",
    "bootstrap_ratio",
    "capture_baselines",
    "clear_loser",
    "launches_per_replay",
    "median_interval",
    "settled",
    "time_variants",
]
