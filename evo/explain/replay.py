"""A stored trial, evaluated again: rendered, compiled, gated and timed."""

from __future__ import annotations

from dataclasses import dataclass

from evo.evaluate import EvaluatorSpec
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate, Outcome, Trial, body_of


@dataclass(frozen=True)
class Replay:
    """A stored trial and what became of it now. `rendered` is the source that its template gives today."""

    stored: Candidate
    rendered: Candidate
    trial: Trial

    @property
    def same_source(self) -> bool:
        """Whether the template still renders the stored bytes, and launches them the same way."""
        return self.rendered.digest == self.stored.digest


def replay(trial: Trial, spec: EvaluatorSpec) -> Replay:
    """Renders the trial's point again, and takes the *stored* source through the whole pipeline in this
    process: compile, gate, timing. A trial that was RED when it was measured again gets the inputs of
    that measurement."""
    stored = trial.candidate
    task = load_task(spec.task, spec.folders)
    template = load_template(task, stored.template, spec.folders, spec.gpu)
    rendered = template.candidate(stored.point, stored.problem)
    evaluator = spec.build()
    try:
        earlier = trial.evaluations - 1 if trial.outcome is Outcome.RED else 0
        again = stored if body_of(stored.source) else rendered  # the template failed, and is mended now
        return Replay(stored, rendered, evaluator.evaluate(again, earlier=earlier))
    finally:
        evaluator.close()
