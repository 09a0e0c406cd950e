"""One candidate through the pipeline, in processes that may die."""

from evo.evaluate.evaluator import (
    Evaluator,
    EvaluatorSpec,
    Precompiler,
    Program,
    failed,
    trial_seed,
    versions_of,
)

__all__ = ["Evaluator", "EvaluatorSpec", "Precompiler", "Program", "failed", "trial_seed", "versions_of"]
