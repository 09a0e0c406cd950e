"""Replays: what searches found after so many evaluations, and points under way."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.budgets import best_after, places, slowdowns
from benchmarks.search.public_spaces import LOOKED_AT, NEVER_LOOKED_AT
from benchmarks.search.runs import Ask, opened

ROOT = Path(__file__).parents[1]


def test_what_searches_found_is_compared_after_so_many_evaluations() -> None:
    slow = np.array([math.nan, 3.0, *[2.0] * 198])
    found = best_after([slow, np.append(slow[:19], 1.0), slow[:1]])
    assert found.tolist() == [[2.0] * 5, [2.0, 1.0, 1.0, 1.0, 1.0], [100.0] * 5]
    after = {"a": slowdowns({"s": found[:2]}), "b": slowdowns({"s": 1.5 * found[:2]})}
    assert after["a"]["10"] == {"slowdown": 1.0, "interval": [1.0, 1.0]}
    assert after["a"]["20"]["slowdown"] == pytest.approx(2**0.5 - 1, abs=1e-4)
    assert places(after)["10"] == "a is first"
    assert places(after)["50"] == "a is first; not told from it: b"


def test_a_replay_keeps_points_under_way_and_no_more_than_it_knows() -> None:
    path = f"{ROOT}/benchmarks/spaces/attention-flash_mma-H200.json.xz"
    space, _, rows = opened(path)
    eight, told = Ask("random@8", space, 0), 0
    while told < 20:
        point = eight.next()
        assert point is not None
        assert len(eight._under_way) == max(8 - told, min(8, told)), "a design of eight points, then as many"
        eight.tell(rows[point])
        told += 1


def test_no_space_is_both_looked_at_and_not() -> None:
    kept = [(kernel, gpu) for kernel, gpus in NEVER_LOOKED_AT.items() for gpu in gpus]
    assert len(set(kept)) == 25
    assert sum(map(len, LOOKED_AT.values())) == 31
