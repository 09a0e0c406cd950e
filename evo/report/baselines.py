"""Baselines by name, and the groups of them that a task declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evo.trial import InputTime, counting

Groups = Mapping[str, tuple[str, ...]]
"""Baselines that are one library's, by the group's name (`Task.baseline_groups`)."""


def best_baseline(baselines_us: Mapping[str, float]) -> tuple[str, float] | None:
    """Name and median of the fastest one."""
    return min(baselines_us.items(), key=lambda item: item[1]) if baselines_us else None


def fastest_of(group: tuple[str, ...], baselines_us: Mapping[str, float]) -> tuple[str, float] | None:
    """Name and median of the fastest baseline of a group."""
    return best_baseline({name: us for name, us in baselines_us.items() if name in group})


def group_record(groups: Groups, times: Mapping[str, InputTime], ranking: str) -> dict[str, Any]:
    """Of each group the kernel's speedup over its fastest baseline, on the timing input where that is least,
    for a script: of a group SDPA `fastest_sdpa`, `fastest_sdpa_us` and `sdpa_speedup`, each None where it is
    not known."""
    record: dict[str, Any] = {}
    for group, names in groups.items():
        ratios = [
            (fastest[1] / times[on].median_us, *fastest)
            for on in counting(times, ranking)
            if (fastest := fastest_of(names, times[on].baselines_us))
        ]
        least = min(ratios, default=(None, None, None))
        key = group_key(group)
        record |= {f"{key}_speedup": least[0], f"fastest_{key}": least[1], f"fastest_{key}_us": least[2]}
    return record


def group_key(group: str) -> str:
    """A group's name as part of a key: `SDPA` is `sdpa`, `Flash Attention` is `flash_attention`."""
    return re.sub(r"\W+", "_", group.lower())
