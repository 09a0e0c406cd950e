"""`evo.Trial`: one candidate of a study, and how its journey ended."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from evo.report import point_text, score_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evo.api.trial_kernel import TrialKernel
    from evo.study import Setup
    from evo.trial import Trial as Record
    from evo.trial import Value


class Trial:
    """One kernel that a study tried. `Study.best` and `Study.trial` give it."""

    def __init__(self, record: Record, setup: Callable[[], Setup]) -> None:
        self._record, self._setup = record, setup

    @property
    def name(self) -> str:
        """STUDY/NUMBER, as every command of `evo` takes it."""
        return self._record.name

    @property
    def number(self) -> int:
        """Its number in the study, from 0 on."""
        return self._record.number

    @property
    def template(self) -> str:
        """The template that it was rendered from."""
        return self._record.candidate.template

    @property
    def parameters(self) -> dict[str, Value]:
        """The tunables' values by name."""
        return dict(self._record.candidate.point)

    @property
    def status(self) -> str:
        """How its journey ended: "TIMED" or "GREEN" for a correct kernel, "RED" for a wrong one, "UNPROVEN",
        "UNCOMPILABLE", "UNLAUNCHABLE", "UNRENDERABLE", "HUNG" or "CRASHED"."""
        return str(self._record.outcome)

    @property
    def reason(self) -> str:
        """Why it is not correct, and where; "" where it is."""
        record = self._record
        return ": ".join(filter(None, (record.reason, record.detail, record.where)))

    @property
    def median_us(self) -> float | None:
        """The measured time of a launch in µs (of several timing inputs, the one that the study ranks by);
        None where nothing was measured, as on the emulator."""
        timing = self._record.timing
        return timing.median_us if timing else None

    @property
    def estimate_us(self) -> float | None:
        """The emulator's model of the time in µs on the GPU that it stands for; None where there is none. It
        is no measurement."""
        return self._record.estimate_us

    @property
    def source(self) -> str:
        """Its CUDA source, which compiles by itself."""
        return self._record.candidate.source

    @cached_property
    def kernel(self) -> TrialKernel:
        """Runs the kernel on tensors: `trial.kernel(x, y)`, or by name, `trial.kernel(x=x, y=y)`.

        By place are the buffers that it reads, in the task's order; by name any buffer. They are contiguous
        and of the task's dtypes. CUDA tensors run on their GPU, on torch's current stream, without waiting;
        CPU tensors and NumPy arrays run on the emulator. Their shapes may be those of another problem of the
        task. Outputs are allocated unless given; what is changed in place changes. Gives the output, or
        several by name (NumPy arrays for arrays). A kernel with constant memory serves one stream at a time.

        UsageError where tensors do not fit the task; another EvoError where the kernel does not serve their
        sizes, or where the emulator sees a forbidden access."""
        from evo.api.trial_kernel import TrialKernel

        return TrialKernel(self._record.candidate, self._setup)

    def __repr__(self) -> str:
        time = score_text(self.median_us, self.estimate_us) if self._record.outcome.correct else self.reason
        return f"<Trial {self.name} {self.status} {time} · {self.template} {point_text(self.parameters)}>"


def parameter_columns(point: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters as columns of a table of trials, named as Optuna's are."""
    return {f"params_{name}": value for name, value in point.items()}
