"""Workers on several GPUs of one model, whose times are compared only when it is known by what these differ.

    evaluators ── trial of GPU k ──> is the offset of k known?  yes ──> as timed on the first GPU ──> search
                                                                no  ──> kept back until it is

The first correct kernel becomes the reference kernel: every GPU times it as often as the study's first GPU,
at the same time and before all that waits; a turn is one time of each, on the first timing input. Now and
then the best kernel so far takes its place, for what GPUs differ by depends on what a kernel does.
Where the first GPU is gone, what it had measured stands for it. Each offset is stored when it is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from evo.errors import MachineError
from evo.loop.loop import Workers
from evo.store import Store
from evo.study import Study
from evo.timing.offset import measured_offset, on_reference
from evo.trial import Candidate, Offset, Trial

TURNS = {"reference": 6, "best": 10}
"""Turns of a measured offset, by its kernel. Six are the fewest that have an interval at 95 %: on the first
comparison the trials of a GPU wait. Of ten the interval leaves out the least and the largest."""
AGAIN_S = 5.0, 60.0
"""After so many seconds, the first time and at last, the GPUs are compared by the best kernel, if that is
another one by now; the wait doubles. A search of a minute, too, is to know it by a kernel near its best."""
UNFIT_KERNELS = 3
"""Kernels in a row that could not be timed on every GPU, after which the GPUs cannot be compared."""


class GpuWorkers(Workers, Protocol):
    """Workers with evaluators on several GPUs: evo.evaluate.pool.Pool, or a cluster."""

    @property
    def gpus(self) -> Sequence[str]:
        """The ids of the GPUs that evaluate now."""
        ...

    def remeasure_on(self, gpu: str, number: int, candidate: Candidate, earlier: int) -> None:
        """Times a candidate on one of the GPUs, as soon as may be, on the first timing input at least."""
        ...


@dataclass
class _Turns:
    """A kernel that GPUs time, `count` times each. `stored_us`: what the first GPU measured, where it is not
    at hand. `taken`: the times in µs that each GPU has told."""

    kernel: str
    candidate: Candidate
    count: int
    stored_us: float | None
    taken: dict[str, list[float]]

    @property
    def complete(self) -> bool:
        return all(len(times) == self.count for times in self.taken.values())


class ComparedWorkers:
    """`workers` whose trials all have times of the study's first GPU. `notice` hears of a GPU that is off."""

    def __init__(
        self, workers: GpuWorkers, study: Study, store: Store, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._workers, self._study, self._store, self._notice = workers, study, store, notice
        self._first = store.offsets.first_gpu(study) or workers.gpus[0]
        self._known = {one.gpu: one for one in store.offsets.of(study)}
        self._back: list[tuple[int, Trial]] = []
        """Trials that are kept back."""
        best = store.leaderboard(study=study.name, limit=1)
        self._best: Trial | None = store.trial(best[0].trial) if best else None
        self._turns: _Turns | None = None
        self._asked: dict[int, str] = {}
        """GPUs that are to answer, by the numbers that their answers will have."""
        self._numbers = 0
        self._compared = float("-inf"), ""
        """When, and by which program."""
        self._again_s = AGAIN_S[0]
        self._unfit: set[str] = set()

    @property
    def capacity(self) -> int:
        return self._workers.capacity + len(self._back)

    @property
    def idle(self) -> int:
        return self._workers.idle

    def submit(self, number: int, candidate: Candidate) -> None:
        self._workers.submit(number, candidate)

    def remeasure(self, number: int, candidate: Candidate, earlier: int) -> None:
        self._workers.remeasure(number, candidate, earlier)

    def activity(self) -> list[str]:
        return self._workers.activity()

    def close(self) -> None:
        """Says which trials are lost: the search ended before they could be compared."""
        back, self._back = self._back, []
        for gpu in dict.fromkeys(trial.gpu for _, trial in back):
            lost = sum(trial.gpu == gpu for _, trial in back)
            self._notice(f"trials of {gpu} that are not kept: {lost}; what it differs by was not known yet")
        self._workers.close()

    def wait(self, timeout: float) -> list[tuple[int, Trial]]:
        """What has finished and can be compared; the rest is kept back. MachineError where the GPUs cannot be
        compared by any kernel."""
        for number, trial in self._workers.wait(timeout):
            if number in self._asked:
                self._answer(self._asked.pop(number), trial)
            else:
                self._back.append((number, trial))
        self._compare()
        known = [(number, trial) for number, trial in self._back if self._is_known(trial)]
        self._back = [one for one in self._back if not self._is_known(one[1])]
        return [(number, self._on_first(trial)) for number, trial in known]

    # ---- times of the first GPU

    def _is_known(self, trial: Trial) -> bool:
        return trial.score_us is None or trial.gpu == self._first or trial.gpu in self._known

    def _on_first(self, trial: Trial) -> Trial:
        offset = self._known.get(trial.gpu)
        if trial.score_us is not None and offset is not None and trial.gpu != self._first:
            trial = on_reference(trial, offset)
        us, best = trial.score_us, self._best
        if us is not None and (best is None or us < (best.score_us or 0.0)):
            self._best = trial
        return trial

    # ---- what the GPUs differ by

    def _compare(self) -> None:
        """Begins a comparison that is due, unless one is under way."""
        others = [gpu for gpu in self._workers.gpus if gpu != self._first]
        if self._turns is not None or not others:
            return
        correct = [trial for _, trial in self._back if trial.score_us is not None]
        candidates = [trial for trial in (self._best, *correct) if trial is not None]
        fit = [trial for trial in candidates if trial.candidate.program not in self._unfit]
        if not fit:
            return
        chosen = fit[0]
        unknown = [gpu for gpu in others if gpu not in self._known]
        when, program = self._compared
        better = chosen is self._best and chosen.candidate.program != program
        if not unknown and not (better and time.monotonic() > when + self._again_s):
            return
        at_hand = self._first in self._workers.gpus
        if not at_hand and (chosen is not self._best or not unknown):
            return  # there is nothing to compare with, or what is known is as good
        stored_us = None if at_hand else _compared_us(chosen)
        gpus = [*([self._first] if at_hand else []), *(others if at_hand else unknown)]
        kernel = "reference" if unknown else "best"
        count = TURNS[kernel] if chosen.timing else 1  # an estimate has no noise
        self._turns = _Turns(kernel, chosen.candidate, count, stored_us, {gpu: [] for gpu in gpus})
        # all at once: one after the other they would wait behind candidates each time, with trials kept back
        for turn, gpu in product(range(count), gpus):
            self._numbers -= 1  # no trial has such a number
            self._asked[self._numbers] = gpu
            self._workers.remeasure_on(gpu, self._numbers, chosen.candidate, turn + 1)

    def _answer(self, gpu: str, trial: Trial) -> None:
        turns = self._turns
        if turns is None or trial.candidate.program != turns.candidate.program:
            return  # of a comparison that was given up
        us = _compared_us(trial)
        if us is None:
            self._give_up(turns, trial)
            return
        turns.taken[gpu].append(us)
        if turns.complete:
            self._conclude(turns)

    def _give_up(self, turns: _Turns, trial: Trial) -> None:
        """Another kernel must show what the GPUs differ by: this one was not correct on all of them."""
        self._turns = None
        self._unfit.add(turns.candidate.program)
        if len(self._unfit) >= UNFIT_KERNELS:
            raise MachineError(
                f"{trial.gpu} cannot be compared with {self._first}: {trial.outcome} {trial.reason}",
                f"search on one GPU: evo resume {self._study.name} --gpus 0",
            )

    def _conclude(self, turns: _Turns) -> None:
        self._turns = None
        self._unfit.clear()
        program = turns.candidate.program
        self._compared = time.monotonic(), program
        if turns.kernel == "best":
            self._again_s = min(2 * self._again_s, AGAIN_S[1])
        reference = turns.taken.pop(self._first, [turns.stored_us or 0.0] * turns.count)
        for gpu, own in turns.taken.items():
            times = list(zip(own, reference, strict=True))
            offset = measured_offset(gpu, self._first, turns.kernel, program, times)
            self._store.offsets.add(self._study, offset)
            was = self._known.get(gpu)
            self._known[gpu] = offset
            if offset.is_off and not (was and was.is_off):
                self._notice(offset_text(offset))


def _compared_us(trial: Trial) -> float | None:
    """What GPUs are compared by: the time on the first timing input, or an estimate."""
    if trial.timing is None:
        return trial.estimate_us
    return next(iter(trial.timing.times.values())).median_us


def offset_text(offset: Offset) -> str:
    """`GPU-1 is 3.1 % slower than GPU-0 (2.8 to 3.4 %, at 98 %): its times are divided by 1.031`."""
    slower = offset.ratio >= 1
    low, high = sorted(abs(end - 1) * 100 for end in (offset.low, offset.high))
    return (
        f"{offset.gpu} is {abs(offset.ratio - 1) * 100:.1f} % {'slower' if slower else 'faster'} than "
        f"{offset.reference} ({low:.1f} to {high:.1f} %, at {offset.level * 100:.0f} %): "
        f"its times are divided by {offset.ratio:.3f}"
    )
