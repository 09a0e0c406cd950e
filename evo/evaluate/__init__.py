"""One candidate through the pipeline, in processes that may die."""

from evo.evaluate.evaluator import Evaluator, EvaluatorSpec, trial_seed, versions_of
from evo.evaluate.program import Precompiler, Program, failed

__all__ = ["Evaluator", "EvaluatorSpec", "Precompiler", "Program", "failed", "trial_seed", "versions_of"]
