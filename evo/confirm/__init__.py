"""CONFIRMED: finalists are gated and timed again in a fresh process, beside all baselines."""

from evo.confirm.ahead import Ahead
from evo.confirm.confirmation import ROUNDS, SANITIZE_S, Step, confirm, is_hurried, never, reserve_s

__all__ = ["ROUNDS", "SANITIZE_S", "Ahead", "Step", "confirm", "is_hurried", "never", "reserve_s"]
