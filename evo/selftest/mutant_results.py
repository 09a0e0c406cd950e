"""What became of the mutants of a kernel: one result each, and the record of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from evo.calls import OwnCalls
from evo.gpu import Gpu
from evo.trial import Outcome, Point, Problem

Fate = Literal["refused", "survived", "unchanged", "no program"]
"""`refused` and `survived`: by the check for candidates; `unchanged`: ptxas makes the original's machine code
of it; `no program`: ptxas or the emulator cannot read it."""


@dataclass(frozen=True)
class MutationTarget:
    """An honest kernel whose mutants are tried: a template's `point` (its default unless given) for `problem`
    on the GPU that the emulator stands for. Picklable."""

    template: str
    problem: Problem
    gpu: Gpu
    cache: Path
    nvcc: Path | None = None
    folders: tuple[Path, ...] = ()
    point: Point | None = None
    seed: int = 0
    calls: OwnCalls | None = None
    """Recorded calls of the problem that mutants meet, too."""


@dataclass(frozen=True)
class MutantResult:
    """What became of one mutant. `place` is the CUDA line that its PTX line came from (and the line that this
    was called from), `text` that line's code. Of a survivor: in how many of the `compared` launches beside
    the original its outputs had other bits (`differs`); how the check for finalists ended, by seed
    (`finalists`)."""

    kind: str
    line: int
    before: str
    after: str
    place: str
    text: str
    fate: Fate
    outcome: str
    reason: str
    where: str
    seconds: float
    differs: int = 0
    compared: int = 0
    finalists: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, str]:
        """That of its mutant."""
        return self.kind, self.line, self.after

    @property
    def next_step(self) -> Literal["compare", "judge"] | None:
        """What is to be found out next of a survivor, if anything."""
        if self.fate != "survived" or self.finalists:
            return None
        return "judge" if self.differs else None if self.compared else "compare"

    @property
    def passes(self) -> bool:
        """Whether it is a survivor that the check for finalists lets through, too: at one of the seeds, or
        as far as can be told, for it leaves the original's bits."""
        late = Outcome.GREEN in self.finalists.values() or not (self.differs or self.finalists)
        return self.fate == "survived" and late

    def with_verdict(self, seed: int, verdict: str) -> MutantResult:
        """With how the check for finalists ended at `seed`."""
        return replace(self, finalists={**self.finalists, str(seed): verdict})


def in_order(tried: Iterable[MutantResult]) -> list[MutantResult]:
    """By line."""
    return sorted(tried, key=lambda t: (t.line, t.kind, t.after))


def score(tried: Sequence[MutantResult]) -> float:
    """The share of the mutants that run and differ which the gate refuses; 1 where there is none."""
    fates = Counter(t.fate for t in tried)
    counted = fates["refused"] + fates["survived"]
    return fates["refused"] / counted if counted else 1.0


def record(target: MutationTarget, tried: Sequence[MutantResult]) -> Mapping[str, Any]:
    """The result as JSON-able values: counts by kind and by reason, scores, and each survivor.

    `executed` is the sum of `refused` (by the check for candidates), `only_finalists` (refused by the check
    for finalists only), `alike` (not refused; the original's bits in all launches beside it) and `within`
    (not refused, though bits differ). `score` is the share that the check for candidates refused,
    `score_thorough` the share that either check refused; `_of_different` leaves out those that are `alike`.
    """
    fates = Counter(t.fate for t in tried)
    by_kind: dict[str, Counter[str]] = {}
    for t in tried:
        by_kind.setdefault(t.kind, Counter())[t.fate] += 1
    survivors = [asdict(t) for t in tried if t.fate == "survived"]
    finalists = [t for t in tried if t.passes]
    alike = sum(not t.differs for t in finalists)
    counted = fates["refused"] + fates["survived"]
    return {
        "template": target.template,
        "problem": target.problem.key,
        "gpu": target.gpu.name,
        "seed": target.seed,
        "executed": counted,
        "refused": fates["refused"],
        "score": score(tried),
        "only_finalists": fates["survived"] - len(finalists),
        "alike": alike,
        "within": len(finalists) - alike,
        "score_of_different": fates["refused"] / (counted - alike) if counted > alike else 1.0,
        "score_thorough": (counted - len(finalists)) / counted if counted else 1.0,
        "score_thorough_of_different": (counted - len(finalists)) / (counted - alike)
        if counted > alike
        else 1.0,
        "unchanged": fates["unchanged"],
        "no_program": fates["no program"],
        "by_kind": {kind: dict(counts) for kind, counts in sorted(by_kind.items())},
        "reasons": dict(Counter(t.reason or t.outcome for t in tried if t.fate == "refused").most_common()),
        "median_seconds": sorted(t.seconds for t in tried)[len(tried) // 2] if tried else None,
        "survivors": survivors,
    }
