"""Baselines by name, and the groups of them that a task declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Groups = Mapping[str, tuple[str, ...]]
"""Baselines that are one library's, by the group's name (`Task.baseline_groups`)."""


def best_baseline(baselines_us: Mapping[str, float]) -> tuple[str, float] | None:
    """Name and median of the fastest one."""
    return min(baselines_us.items(), key=lambda item: item[1]) if baselines_us else None


def fastest_of(group: tuple[str, ...], baselines_us: Mapping[str, float]) -> tuple[str, float] | None:
    """Name and median of the fastest baseline of a group."""
    return best_baseline({name: us for name, us in baselines_us.items() if name in group})


def group_record(
    groups: Groups, baselines_us: Mapping[str, float], median_us: float | None
) -> dict[str, Any]:
    """Of each group its fastest baseline and the kernel's speedup over it, for a script: of a group SDPA
    `fastest_sdpa`, `fastest_sdpa_us` and `sdpa_speedup`, each None where it is not known."""
    record: dict[str, Any] = {}
    for group, names in groups.items():
        fastest = fastest_of(names, baselines_us)
        key = group_key(group)
        record[f"fastest_{key}"] = fastest[0] if fastest else None
        record[f"fastest_{key}_us"] = fastest[1] if fastest else None
        record[f"{key}_speedup"] = fastest[1] / median_us if fastest and median_us else None
    return record


def group_key(group: str) -> str:
    """A group's name as part of a key: `SDPA` is `sdpa`, `Flash Attention` is `flash_attention`."""
    return re.sub(r"\W+", "_", group.lower())


def compared_with(
    median_us: float | None, speedup: float | None, baselines_us: Mapping[str, float]
) -> tuple[str, float] | None:
    """Name and median of the baseline that a speedup is to: the one that was timed in turns with the kernel,
    and two may be as good as equal."""
    if median_us is None or speedup is None or not baselines_us:
        return None
    return min(baselines_us.items(), key=lambda item: abs(item[1] - median_us * speedup))
