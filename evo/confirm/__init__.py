"""CONFIRMED: finalists are gated and timed again in a fresh process, beside all baselines."""

from evo.confirm.ahead import Ahead
from evo.confirm.confirmation import PATIENT_S, ROUNDS, SANITIZE_S, Step, confirm, never, reserve_s

__all__ = ["PATIENT_S", "ROUNDS", "SANITIZE_S", "Ahead", "Step", "confirm", "never", "reserve_s"]
