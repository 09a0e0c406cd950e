"""One candidate through the pipeline, in processes that may die."""

from evo.evaluate.evaluator import (
    Evaluator,
    Precompiler,
    Program,
    failed,
    trial_seed,
    versions_of,
)
from evo.evaluate.spec import EvaluatorSpec

__all__ = ["Evaluator", "EvaluatorSpec", "Precompiler", "Program", "failed", "trial_seed", "versions_of"]
