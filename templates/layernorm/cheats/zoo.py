"""What the gate's own test must know of the kernels in this folder: how they are compiled and launched.

All are launched as include/row.cuh is, the honest kernel that most of them alter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evo.task import load_module
from evo.trial import LaunchConfig, Problem, Value

_call = load_module(Path(__file__).parents[1] / "call.py")
_row = load_module(Path(__file__).parents[2] / "include" / "row" / "planted.py")

SHAPE = "5,1000"
"""The problem of a file that names none."""
TILES = (8, 128)
HONEST = '#include "include/row.cuh"\n'
CONTROLS: Mapping[str, tuple[str, str, Mapping[str, Value]]] = {
    "bf16": ("5,1000", "bf16", {}),
    "fp32": ("5,1000", "fp32", {}),
    "fp16 odd gap": ("5,999", "fp16", {"gap": 1}),
}
"""Problems for which the honest kernel and the baselines must be GREEN: (shape, dtype, flags)."""


def prelude(problem: Problem) -> str:
    """What every file here finds defined."""
    found: str = _row.prelude(problem)
    return found


def launch(problem: Problem) -> LaunchConfig:
    found: LaunchConfig = _row.launch(_call.operation(problem), problem)
    return found
