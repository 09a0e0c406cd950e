"""One candidate through the pipeline, in processes that may die."""

from evo.evaluate.evaluator import Evaluator, EvaluatorSpec, trial_seed
from evo.evaluate.program import Precompiler, Program, failed
from evo.evaluate.versions import versions_of

__all__ = ["Evaluator", "EvaluatorSpec", "Precompiler", "Program", "failed", "trial_seed", "versions_of"]
