"""Rules: which points a template, and the hardware, allow.

A rule is one function, `rule(p, limits, problem)`, over *columns*: `p.bm` is an array with one value a point.
So a rule is written with operators (`&`, `|`, `~`, `np.where`), and a million points take a fraction of a
second. A single point is a column of length one, so there is only one way to evaluate a rule."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evo.errors import BadTemplate, EvoError
from evo.gpu import KIB, Gpu, Limits
from evo.space.parameters import Columns, Parameter
from evo.trial import Problem


@dataclass(frozen=True)
class Rule:
    """A feasibility constraint. `allowed(p, limits, problem)` gives one truth value a point; `reason` says in
    words why a point is refused, and may hold fields of `limits` and `problem`, and the shared-memory limit
    as `smem`: "tile longer than the {problem[L]} keys", "more than {smem} of shared memory"."""

    allowed: Callable[[Any, Limits, Problem], Any]
    reason: str
    written_at: str = ""
    """`file:line` where it was written, if that is not where its function is."""

    def why(self, limits: Limits, problem: Problem) -> str:
        """The reason, with its numbers: the phrase that rejections are counted by."""
        try:
            return self.reason.format(limits=limits, problem=problem, smem=smem_text(limits.smem_bytes))
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            hint = "fields: {smem}, and of limits and problem, as in {problem[D]}"
            raise BadTemplate(f"{self.place}: malformed reason {self.reason!r}: {error}", hint) from error

    @property
    def name(self) -> str:
        return self.allowed.__name__

    @property
    def place(self) -> str:
        """`file:line` of the rule's function."""
        code = self.allowed.__code__
        return self.written_at or f"{code.co_filename}:{code.co_firstlineno}"

    def __call__(self, p: Any, limits: Limits, problem: Problem) -> Any:
        return self.allowed(p, limits, problem)

    def _failed_at(self, error: Exception) -> str:
        """`file:line` of the template's own code in the traceback of `error`."""
        if self.written_at:
            return self.written_at
        here = Path(__file__).parent
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent != here]
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else self.place

    def mask(self, columns: Columns, limits: Limits, problem: Problem) -> npt.NDArray[np.bool_]:
        """One truth value a point. BadTemplate if the function fails or answers something else."""
        try:
            answer = np.asarray(self.allowed(columns, limits, problem))
        except BadTemplate as error:
            if self.place in error.message:
                raise
            raise BadTemplate(f"{self._failed_at(error)}: {error.message}", error.hint) from error
        except EvoError:
            raise
        except Exception as error:  # whatever a template's rule raises is the template's fault
            hint = "a rule gets arrays: write & | ~ and np.where, not `and`, `or`, `not`, `if`"
            what = f"rule {self.name} failed: {type(error).__name__}: {error}"
            raise BadTemplate(f"{self._failed_at(error)}: {what}", hint) from error
        if answer.dtype != np.bool_ or answer.shape not in ((), (columns.points_asked,)):
            got = f"{answer.dtype}{list(answer.shape)}"
            hint = f"a rule answers with one truth value a point: bool[{columns.points_asked}]"
            raise BadTemplate(f"{self.place}: rule {self.name} gave {got}", hint)
        return np.broadcast_to(answer, (columns.points_asked,))


def rule(reason: str) -> Callable[[Callable[[Any, Limits, Problem], Any]], Rule]:
    """Decorator: a `Rule` of a function `(p, limits, problem)` that is True where a point is allowed."""
    return lambda allowed: Rule(allowed, reason)


def auto_rules(parameters: Sequence[Parameter]) -> tuple[Rule, ...]:
    """Of each parameter with a value `auto` the rule by which a kernel has one name for a problem: a value
    that `auto` gives there is not allowed."""
    return tuple(_named_auto(one) for one in parameters if one.auto is not None)


def _named_auto(parameter: Parameter) -> Rule:
    @rule(f"{parameter.name}=auto is the same kernel")
    def named_auto(p: Any, limits: Limits, problem: Problem) -> Any:
        assert parameter.auto is not None
        value = p[parameter.name]
        return p.says_auto(parameter.name) | (value != parameter.auto(p, problem, limits.gpu))

    return named_auto


REGISTER_MODEL_LIMIT = 300
"""The register model is a model (Spearman 0.97 against ptxas): above this even its error does not save a
point; between 220 and this, ptxas decides."""


SHARED_SM = 1 / 3
"""k CTAs that share an SM are taken to need k ** SHARED_SM times as long as one that is alone: 0 would be
CTAs that wait all the time, 1 such that keep a unit of the SM busy. What attention kernels took for one shape
says most of another with 0.2 to 0.5 (lab/strategies.md)."""


@dataclass(frozen=True)
class Occupancy:
    """`waves`: CTAs of a launch for each SM. `resident`: CTAs that fit on an SM at once, at least 1. One a
    point."""

    waves: npt.NDArray[np.float64]
    resident: npt.NDArray[np.int64]

    @property
    def load(self) -> npt.NDArray[np.float64]:
        """CTAs of the SM that has most."""
        return np.maximum(1, np.ceil(self.waves))

    @property
    def together(self) -> npt.NDArray[np.float64]:
        """CTAs that share the busiest SM."""
        return np.minimum(self.load, self.resident)

    @property
    def rounds(self) -> npt.NDArray[np.float64]:
        """CTAs that the busiest SM runs one after the other."""
        return np.ceil(self.load / self.resident)

    @property
    def duration(self) -> npt.NDArray[np.float64]:
        """How many times as long the launch takes as one CTA that has an SM alone, roughly."""
        return np.asarray(self.rounds * self.together**SHARED_SM)


@dataclass(frozen=True)
class ResourceModels:
    """A template's models of what it needs, each `(p, problem) -> array`; None where it has none.

    `smem_bytes` a CTA, `threads` a CTA, `registers` a thread, `grid` (x, y, z), `cluster` CTAs a cluster.
    """

    needs: str
    smem_bytes: Callable[[Any, Problem], Any]
    threads: Callable[[Any, Problem], Any]
    registers: Callable[[Any, Problem], Any] | None = None
    grid: Callable[[Any, Problem], Any] | None = None
    cluster: Callable[[Any, Problem], Any] | None = None

    def waves(self, p: Any, problem: Problem, gpu: Gpu) -> npt.NDArray[np.float64] | None:
        """How many CTAs of the launch there are for each SM; None without a model of the grid."""
        if self.grid is None:
            return None
        ctas = np.asarray(1.0)
        for side in self.grid(p, problem):
            ctas = ctas * np.asarray(side, float)
        return ctas / gpu.sms

    def occupancy(self, p: Any, problem: Problem, gpu: Gpu, registers: Any) -> Occupancy | None:
        """How the CTAs of the launch fill the SMs, with so many `registers` a thread (0: not known); None
        without a model of the grid."""
        if (waves := self.waves(p, problem, gpu)) is None:
            return None
        resident = gpu.residents(self.threads(p, problem), registers, self.smem_bytes(p, problem))
        return Occupancy(waves, np.maximum(1, resident))


def hardware_rules(models: ResourceModels) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """The rules that hold for every template: (asked before the template's own, asked after them).

    The instruction set comes first. The models come last: they need not make sense of points that the
    template's own rules refuse.
    """

    @rule(f"needs {models.needs} instructions, {{limits.instructions}} allowed")
    def instruction_set(_p: Any, limits: Limits, _problem: Problem) -> Any:
        return limits.allows(models.needs)

    @rule("more than {smem} of shared memory a CTA")
    def shared_memory(p: Any, limits: Limits, problem: Problem) -> Any:
        return np.asarray(models.smem_bytes(p, problem)) <= limits.smem_bytes

    @rule("more than {limits.gpu.threads_per_cta} threads a CTA")
    def threads(p: Any, limits: Limits, problem: Problem) -> Any:
        return np.asarray(models.threads(p, problem)) <= limits.gpu.threads_per_cta

    @rule(f"register model above {REGISTER_MODEL_LIMIT} a thread")
    def registers(p: Any, _limits: Limits, problem: Problem) -> Any:
        assert models.registers is not None
        return np.asarray(models.registers(p, problem)) <= REGISTER_MODEL_LIMIT

    @rule("grid beyond the launch limits (2^31 - 1, 65535, 65535)")
    def grid(p: Any, _limits: Limits, problem: Problem) -> Any:
        assert models.grid is not None
        x, y, z = (np.asarray(side) for side in models.grid(p, problem))
        return (x < 2**31) & (y <= 65535) & (z <= 65535)

    @rule("cluster of more than {limits.gpu.max_cluster} CTAs")
    def cluster(p: Any, limits: Limits, problem: Problem) -> Any:
        assert models.cluster is not None
        return np.asarray(models.cluster(p, problem)) <= limits.gpu.max_cluster

    optional = ((models.registers, registers), (models.grid, grid), (models.cluster, cluster))
    return (instruction_set,), (shared_memory, threads, *(r for model, r in optional if model is not None))


def smem_text(nbytes: int) -> str:
    """`99 KB` for 101376: shared-memory sizes as people name them."""
    return f"{nbytes // KIB} KB" if nbytes % KIB == 0 else f"{nbytes} bytes"
