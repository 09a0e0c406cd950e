"""Times by timing input as JSON, in the rows of trials and of finalists; and what follows from them as
columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from evo.errors import StoreError
from evo.trial import InputTime, Interval, RankedTime


def ranked_columns(time: RankedTime) -> dict[str, Any]:
    """The time that counts and its speedup, with their intervals."""
    ratio = time.speedup_interval
    return {
        "median_us": time.median_us,
        "low_us": time.interval.low,
        "high_us": time.interval.high,
        "speedup": time.speedup,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
    }


def times_json(times: Mapping[str, InputTime]) -> dict[str, dict[str, Any]]:
    """Times by timing input; `samples`: how many of the row's samples are of this one. What is not known is
    left out. StoreError for a time that is no number."""
    return {name: _json(time) for name, time in times.items()}


def _json(time: InputTime) -> dict[str, Any]:
    own = time.interval
    if not math.isfinite(time.median_us):
        raise StoreError(f"{time.median_us} µs is no time", "")
    found: dict[str, Any] = {"median_us": time.median_us, "low_us": own.low, "high_us": own.high}
    found["level"] = own.level
    if time.speedup is not None:
        found |= {"speedup": time.speedup, "versus": time.versus}
    if time.speedup_interval is not None:
        ratio = time.speedup_interval
        found |= {"speedup_low": ratio.low, "speedup_high": ratio.high, "speedup_level": ratio.level}
    if time.baselines_us:
        found["baselines"] = dict(time.baselines_us)
    if time.samples_us:
        found["samples"] = len(time.samples_us)
    return found


def times_of(found: Mapping[str, Mapping[str, Any]]) -> dict[str, InputTime]:
    """The times of such JSON, without samples."""
    return {
        name: InputTime(
            one["median_us"],
            Interval(one["low_us"], one["high_us"], one["level"]),
            one.get("speedup"),
            Interval(one["speedup_low"], one["speedup_high"], one["speedup_level"])
            if "speedup_low" in one
            else None,
            one.get("versus", ""),
            one.get("baselines", {}),
        )
        for name, one in found.items()
    }
