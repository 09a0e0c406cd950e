"""Cross-entropy with a row in registers."""

from __future__ import annotations

from pathlib import Path

from evo.task import load_module

_call = load_module(Path(__file__).with_name("call.py"))
_registers = load_module(Path(__file__).parents[1] / "include" / "row" / "registers.py")

TEMPLATE = _registers.Registers(_call.operation, weights=False, passes=True, writes=False)
