"""A problem that needs more memory than there is: an error and a hint, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from trials import timed

from evo.child import Child
from evo.errors import MachineError
from evo.evaluate.evaluating import Evaluating
from evo.trial import Candidate, Trial


@dataclass(frozen=True)
class Greedy:
    """Asks for more than any machine has, by one of the libraries."""

    by: str
    early: bool = False

    def build(self) -> Greedy:
        if self.early:
            self.ask()
        return self

    usable = True

    def meanwhile(self) -> bool:
        return False

    def evaluate(
        self,
        candidate: Candidate,  # noqa: ARG002
        watch: Callable[[str], None],
        earlier: int,  # noqa: ARG002
        best_us: float | None,  # noqa: ARG002
        compares: bool,  # noqa: ARG002
    ) -> Trial:
        watch("gate")
        self.ask()
        return timed(0)

    def ask(self) -> None:
        if self.by == "torch":
            import torch

            torch.empty(2**46)
        elif self.by == "numpy":
            np.empty(2**46)
        elif self.by == "python":
            bytearray(2**50)
        else:
            raise RuntimeError("another thing")


@pytest.mark.parametrize("by", ["torch", "numpy", "python"])
def test_what_does_not_fit_is_told(by: str) -> None:
    candidate = timed(0).candidate
    with pytest.raises(MachineError, match=f"not enough memory for {candidate.problem.key}: ") as caught:
        Evaluating(Greedy(by), lambda _: None).evaluate(candidate, 0)
    assert "smaller --shape" in caught.value.hint
    with pytest.raises(MachineError, match="not enough memory"):
        Evaluating(Greedy(by, early=True), lambda _: None)


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="another thing"):
        Evaluating(Greedy("bug"), lambda _: None).evaluate(timed(0).candidate, 0)


def test_it_comes_out_of_the_process_as_it_is() -> None:
    with (
        Child(Evaluating, Greedy("numpy")) as child,
        pytest.raises(MachineError, match="not enough memory") as caught,
    ):
        child.ask("evaluate", timed(0).candidate, 0, deadline=300)
    assert caught.value.exit_code == 3
