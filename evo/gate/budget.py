"""What a candidate's launches may cost on the emulator, and how much of the plan that paid for.

Warp instructions are counted, not seconds: the same candidate gets the same cases on every machine. On a GPU
launches cost nothing here, and all of the plan runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from evo.device import LaunchReport
from evo.gate.cases import Case
from evo.task import Task
from evo.trial import Extent, Problem

SMALL_INSTRUCTIONS = 4e7
"""What small problems may cost together (about a second of one core; fast kernels take 1e6). Past that they
run under fewer schedules or are left out; but half of each class runs all the same."""
CLASSES_INSTRUCTIONS = 2e8
"""What they may have cost before a case of the first half of a class. Past that the kernel is UNPROVEN."""
MATRIX_FLOP = 100
"""Operations of wgmma that take as long to emulate as another instruction (measured; of mma.sync 350 do).
They count in what the study's own problem costs: a product of matrices has few other instructions, and
computing what is right takes about as long again."""
OWN_INSTRUCTIONS = 1.2e7
"""What the study's own problem may cost with plain inputs, and with each recorded call (about 0.3 s of one
core). One independent piece of it runs if it costs more."""
PIECE_INSTRUCTIONS = 1e9
"""What one independent piece of it may cost (about 25 s of one core); with any other family a quarter of
that. Past that the kernel is UNPROVEN."""
OWN_ELEMENTS = 2e7
"""Elements of all buffers of the own problem that are made for one case (about 0.5 s of one core, where a
kernel that does little with each takes less). Of a larger problem a share runs."""
FAMILY_INSTRUCTIONS = 1.5e5
"""The same with any other family: its inputs are another check of what plain ones have shown."""
FINALIST_INSTRUCTIONS = 4e9
"""The same for finalists, with all families and seeds together (about 100 s of one core)."""


class Budget:
    """The budget of one candidate's cases, the last of which are of the study's own `problem`."""

    def __init__(self, task: Task, problem: Problem, thorough: bool) -> None:
        self._task, self._problem, self._thorough = task, problem, thorough
        self._spent = 0.0
        self._prices: list[tuple[int, float, float]] = []
        """(FLOP, warp instructions, the same with those that matrix operations count as) of the launches.
        None where instructions are not counted."""
        self._last_flop = 1
        self._planned: Counter[str] = Counter()
        self._ran: Counter[str] = Counter()
        self._left_out: Counter[tuple[str, str]] = Counter()
        """Class and reason: how many cases."""
        self._own_cases = 0
        self._own_cost: float | None = None
        """What all of the own problem may take; None until it is asked for. `_own_work`: with what its matrix
        operations count as."""
        self._own_work = 0.0
        self._own_share = 0.0
        self._own_elements = sum(math.prod(buffer.shape) for buffer in task.buffers(problem))

    def plan(self, cases: Sequence[Case]) -> None:
        """All cases, those that ran before too. Only the first one and the relations on it may run before."""
        self._planned.update(case.class_name for case in cases)
        self._own_cases = sum(case.kind == "own" for case in cases)

    def pay(self, case: Case, report: LaunchReport) -> None:
        """A launch has ended."""
        flop, instructions = self._task.flop(case.problem), report.counters.get("instructions", 0.0)
        self._last_flop = flop
        if not instructions:  # this device does not count them
            return
        work = instructions + report.counters.get("tensor_flop", 0.0) / MATRIX_FLOP
        self._spent += instructions
        self._prices.append((flop, instructions, work))

    def compared(self, case: Case, how_much: str) -> None:
        """So much of the outputs of the case is compared, in words; "": all of it."""
        if how_much:
            self._left_out[case.class_name, f"{case.family} {how_much}"] += 1

    def ran(self, case: Case) -> None:
        """The case has run, under one schedule at least."""
        self._ran[case.class_name] += 1

    def not_served(self, case: Case, why: str) -> None:
        """The candidate is not made for the problem of the case: it is no part of the plan."""
        self._planned[case.class_name] -= 1
        self._left_out[case.class_name, f"not served: {why}"] += 1

    def not_met(self, case: Case, why: str) -> None:
        """The case could not run."""
        self._left_out[case.class_name, why] += 1

    def affords(self, case: Case, under: Sequence[str] = ()) -> bool:
        """Whether the case may run, or go on `under` more schedules; one of a small problem takes no more
        than a larger one did."""
        if self._thorough or case.kind != "case" or not self._prices:
            return True
        needed = 2 * self._ran[case.class_name] < self._planned[case.class_name] and not under
        limit = CLASSES_INSTRUCTIONS if needed else SMALL_INSTRUCTIONS
        flop = self._task.flop(case.problem)
        cost = min((spent for other, spent, _ in self._prices if other >= flop), default=0.0)
        if self._spent + cost <= limit:
            return True
        what = f"not under {', '.join(under)}: " if under else ""
        self._left_out[case.class_name, f"{what}over {limit:.0e} instructions"] += 1
        return False

    def expected(self, case: Case) -> float:
        """Warp instructions that a launch of the case should take, judged by what an operation cost in the
        largest launch before; 0 where there was none."""
        if not self._prices:
            return 0.0
        flop, instructions, _ = max(self._prices)
        return instructions * self._task.flop(case.problem) / flop

    def own_share(self, case: Case) -> Problem | None:
        """The share of the own problem that may be paid for, None where not one piece may: judged by what an
        operation cost in the largest launch before."""
        if self._own_cost is None:
            flop, instructions, work = max(self._prices, default=(1, 0.0, 0.0))
            own = self._task.flop(self._problem) / flop
            self._own_cost, self._own_work = instructions * own, work * own
        asked_for = (self._task.families.plain, *self._task.own_families(self._problem))
        plain = case.family in asked_for
        cost = self._own_work if plain or self._thorough else self._own_cost
        piece = cost * self._part(self._task.share(self._problem, 0.0))
        most = FINALIST_INSTRUCTIONS if self._thorough else PIECE_INSTRUCTIONS / (1 if plain else 4)
        if piece > most:
            why = f"{case.family} one piece of it takes {piece:.1e} instructions, over {most:.1e}"
            self._left_out[case.class_name, why] += 1
            return None
        limit = OWN_INSTRUCTIONS if plain else FAMILY_INSTRUCTIONS
        limit = FINALIST_INSTRUCTIONS / self._own_cases if self._thorough else limit
        share = limit / max(cost, limit)
        if cost:  # else launches are not counted: all of it runs
            share = min(share, OWN_ELEMENTS / self._own_elements)
        at = self._problem if share >= 1 else self._task.share(self._problem, share)
        if self._ran[case.class_name] and not self._thorough and cost * self._part(at) > limit:
            self._left_out[case.class_name, f"{case.family} did not run: over {limit:.0e} instructions"] += 1
            return None
        return at

    def ran_own(self, case: Case) -> None:
        """A case of the own problem has run on the share that it names."""
        share = self._part(case.problem)
        if share < 1:
            takes = f"{self._own_cost:.1e} instructions and {self._own_elements:.1e} elements"
            why = f"ran on {share:.2g} of it: all of it takes {takes}"
            self._left_out[case.class_name, f"{case.family} {why}"] += 1
        if case.family == self._task.families.plain:
            self._own_share = share

    def extent(self) -> Extent:
        """How much of the plan ran."""
        found = [
            f"{name}: {why}{f' ({count} cases)' if count > 1 else ''}"
            for (name, why), count in self._left_out.items()
        ]
        cases = {name: (self._ran[name], planned) for name, planned in self._planned.items()}
        return Extent(cases, self._own_share, tuple(found))

    def scaled(self, report: LaunchReport) -> LaunchReport:
        """The report of the last launch, on a share of the own problem, with the counts of all of it."""
        factor = self._task.flop(self._problem) / self._last_flop
        if factor == 1:
            return report
        return replace(report, counters={name: n * factor for name, n in report.counters.items()})

    def _part(self, at: Problem) -> float:
        """How much of the own problem's work is that of a share of it."""
        return self._task.flop(at) / self._task.flop(self._problem)
