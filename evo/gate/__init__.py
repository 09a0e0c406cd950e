"""The correctness check: GREEN or RED. `check` is the only maker of a `Green`."""

from evo.gate.cases import Case, case_seed, plan, plan_boundary, plan_own, plan_ragged
from evo.gate.check import Green, check
from evo.gate.run import KernelFor

__all__ = [
    "Case",
    "Green",
    "KernelFor",
    "case_seed",
    "check",
    "plan",
    "plan_boundary",
    "plan_own",
    "plan_ragged",
]
