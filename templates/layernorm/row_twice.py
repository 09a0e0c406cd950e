"""LayerNorm with a row read twice."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module

_call = load_module(Path(__file__).with_name("call.py"))
_twice = load_module(Path(__file__).parents[1] / "include" / "row" / "twice.py")

TEMPLATE = _twice.Twice(_call.operation, passes=True)
