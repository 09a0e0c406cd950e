"""The correctness check: GREEN or RED. `check` is the only maker of a `Green`."""

from evo.gate.check import Green, case_seed, check, plan_boundary, plan_own, plan_ragged
from evo.gate.run import Case, KernelFor

__all__ = ["Case", "Green", "KernelFor", "case_seed", "check", "plan_boundary", "plan_own", "plan_ragged"]
