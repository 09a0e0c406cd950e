"""Sets of inputs that launches rotate among, and the judgement of what timed launches left behind.

The buffers stay where they are. What is in them changes: one timing input after the other. So a graph is
captured once, and what differs between two timing inputs is the data alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from evo.device import Device, Kernel, Region
from evo.dtype import dtype_named
from evo.errors import NotEnoughMemory, Red, UnknownName
from evo.gate.judge import Judge, all_finite
from evo.gate.room import gate_bytes, least_bytes, set_bytes
from evo.gate.tolerance import compare, wipe
from evo.gpu import Gpu, Roof
from evo.task import Baseline, Task
from evo.timing.stopwatch import Call, TimingSettings
from evo.trial import MEAN, PLAIN, WORST, LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor

CHECKED_ROWS = 4096
"""Rows of an output that are judged after timing where the task does not say which pieces may be."""
JUDGED_SETS = 4
"""Sets whose outputs may be judged; which ones of a candidate are is drawn. References are not free, and
`cold` has many sets."""


def timing_inputs(task: Task, ranking: str) -> tuple[str, ...]:
    """The timing inputs of a task in the order in which kernels are timed on them: the plain one first, or
    the one that `ranking` names."""
    if ranking == PLAIN:
        return (PLAIN,)
    return tuple(sorted(task.timing_inputs, key=lambda name: name != ranking))


def ranking_named(text: str, task: Task) -> str:
    """The ranking of that name for a task. UnknownName if there is none."""
    known = [WORST, MEAN, *task.timing_inputs]
    if text not in known:
        raise UnknownName.among("ranking", text, known)
    return text


@dataclass(frozen=True)
class _Set:
    """One set of inputs, and an output of its own."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


class _Answer(NamedTuple):
    """What outputs must be: on the host, where no kernel can read it."""

    reference: Mapping[str, Tensor]
    honest: Mapping[str, Tensor]


class _Left(NamedTuple):
    """A copy of what timed launches left in one set, as far as it is compared; of outputs that are compared
    in part `finite` says whether all elements are numbers."""

    name: str
    which: int
    outputs: Mapping[str, Tensor]
    finite: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class _Launch:
    """Enqueues a kernel; holds the buffers that it reads and writes. The copies of constants are no part of
    it, nor of a graph and of a time: they are there before."""

    kernel: Kernel
    launch: LaunchConfig
    read: Mapping[str, Tensor]
    written: Mapping[str, Tensor]

    def __call__(self) -> None:
        self.kernel.start(self._alone, self._regions)

    def write_constants(self) -> None:
        """Copies what lies in the kernel's constant memory."""
        self.kernel.write_constants(self.launch, self._regions)

    @cached_property
    def _alone(self) -> LaunchConfig:
        return replace(self.launch, constants=())

    @cached_property
    def _regions(self) -> dict[str, Region]:
        """Workspaces and inputs are alike here: the gate has checked what is written."""
        return {
            name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name in self.written)
            for name, t in {**self.read, **self.written}.items()
        }


def count_of_sets(gpu: Gpu, nbytes: int, settings: TimingSettings, fit: int | None = None) -> int:
    """Cold: so many that twice the L2 passes by before a set comes round again, or one for each launch of a
    replay. Warm: few, and no more than that. Never more than `fit` into memory."""
    passing = 1 + max(1, math.ceil(2 * gpu.l2_bytes / nbytes))
    warm = min(settings.sets, passing) if gpu.l2_bytes else settings.sets
    wanted = warm if settings.protocol == "warm" else min(passing, settings.most_launches)
    return wanted if fit is None else max(1, min(wanted, fit))


def sets_that_fit(task: Task, problem: Problem, free: int | None) -> int | None:
    """How many sets of a problem's buffers fit in `free` bytes beside its gate, one at least; None: any.
    NotEnoughMemory where the gate and one set do not fit."""
    if free is None:
        return None
    if (least := least_bytes(task, problem)) > free:
        said = f"it takes {least / 1e9:.1f} GB at least, and {free / 1e9:.1f} GB are free"
        hint = "search a smaller --shape, or on a GPU with more memory"
        raise NotEnoughMemory(f"not enough memory for {problem.key}: {said}", hint)
    return max(1, (free - gate_bytes(task, problem)) // set_bytes(task, problem))


class InputSets:
    """The sets of one problem on one GPU; fresh for each seed. `names` are the timing inputs; the sets hold
    the first one at first. Outputs of `judged` sets may be judged."""

    def __init__(
        self,
        device: Device,
        task: Task,
        problem: Problem,
        settings: TimingSettings,
        seed: int,
        ranking: str = WORST,
        judged: int = JUDGED_SETS,
    ) -> None:
        self.device, self.task, self.problem, self.settings = device, task, problem, settings
        self.names = timing_inputs(task, ranking)
        self._seed, self._rng = seed, random.Random(seed)
        self._one_constant = any(b.constant for b in task.buffers(problem))
        self._changed = tuple(b.name for b in task.buffers(problem) if b.role == "inout")
        """Inputs that a kernel changes in place. Timed launches change them again and again: one launch on
        the first content is judged."""
        fit = sets_that_fit(task, problem, device.free_bytes)
        count = count_of_sets(device.gpu, task.nbytes(problem), settings, fit)
        self._judge = Judge.of(task, problem, seed, device.torch_device)
        self._judged = min(count, judged)
        self._held = self.names[0]
        self._sets = [self._made(which) for which in range(count)]
        self._answers: dict[tuple[str, int], _Answer] = {}
        self._left: list[_Left] = []
        self._constants: WeakSet[_Launch] = WeakSet()
        """One launch of each kernel that reads its constant memory."""
        device.finish()  # another stream would not wait for the contents

    def __len__(self) -> int:
        return len(self._sets)

    @property
    def gate_bytes(self) -> int:
        """What the gate of the problem takes beside the sets."""
        return gate_bytes(self.task, self.problem)

    # ---- content

    def fill(self, name: str) -> None:
        """Has all sets hold the timing input `name`, and all outputs NaN; waits."""
        if name != self._held or self._changed:
            for which, made in enumerate(self._sets):
                for buffer, content in self._content(name, which).items():
                    made.inputs[buffer].copy_(content)
            self._held = name
            for launch in self._constants:
                launch.write_constants()
        self.clear()

    def clear(self) -> None:
        """Fills all outputs with NaN, and waits."""
        for made in self._sets:
            for output in made.outputs.values():
                wipe(output)
        self.device.finish()  # the stream of the samples does not wait for the one of the fills

    def _content(self, name: str, which: int) -> dict[str, Tensor]:
        """The same whenever it is asked for: nothing need be kept. A kernel has one constant memory for all
        sets: where some of the task lies there, they hold the same."""
        where, seed = self.device.torch_device, self._seed + (0 if self._one_constant else which)
        if name == PLAIN and name not in self.task.timing_inputs:
            return self.task.inputs(self.problem, self.task.families.plain, seed, where)
        return self.task.timing_tensors(self.problem, name, seed, where)

    def _made(self, which: int) -> _Set:
        import torch

        outputs = {
            buffer.name: torch.empty(
                buffer.shape, dtype=dtype_named(buffer.dtype).torch, device=self.device.torch_device
            )
            for buffer in self.task.buffers(self.problem)
            if buffer.role == "out"
        }
        return _Set(self._content(self._held, which), outputs)

    # ---- calls

    def of_baseline(self, run: Baseline) -> list[Call]:
        """Calls of a baseline, one a set."""
        return [partial(run, made.inputs) for made in self._sets]

    def of_kernel(self, kernel: Kernel, launch: LaunchConfig) -> list[Call]:
        """Launches of a kernel, one a set; they share the workspaces, for they are chained."""
        import torch

        where = self.device.torch_device
        shared = {w.name: torch.zeros(w.nbytes, dtype=torch.uint8, device=where) for w in launch.workspaces}
        calls = [_Launch(kernel, launch, {**made.inputs, **shared}, made.outputs) for made in self._sets]
        if launch.constants:
            calls[0].write_constants()
            self._constants.add(calls[0])
        if launch.constants or shared:
            self.device.finish()  # other streams do not wait for the copies, nor for the zeros
        return [*calls]

    def turned(self, calls: Sequence[Call], launches: int) -> tuple[list[Call], frozenset[int]]:
        """`calls`, turned so that the last of `launches` falls on a set that may be judged, any of them; and
        the sets that are to be judged: that one and another one."""
        count = len(calls)
        last = self._rng.randrange(self._judged)
        order = [(last + 1 - launches + i) % count for i in range(count)]
        written = order if launches >= count else order[:launches]
        another = self._rng.choice([which for which in written if which < self._judged])
        return [calls[which] for which in order], frozenset((last, another))

    # ---- judgement

    def keep(self, calls: Sequence[Call], due: frozenset[int]) -> None:
        """Copies what timed launches left in the sets `due`, before other content comes into them. `calls`:
        those of the kernel, by set."""
        self.device.finish()
        for which in due:
            made = self._sets[which]
            if self._changed:
                for buffer, content in self._content(self._held, which).items():
                    made.inputs[buffer].copy_(content)
                self.device.finish()
                calls[which]()
                self.device.finish()
            changed = {name: made.inputs[name] for name in self._changed}
            outputs = {**made.outputs, **changed}
            some = outputs if self._judge.parts else {}
            finite = {name: all_finite(tensor) for name, tensor in some.items()}
            self._left.append(_Left(self._held, which, self._compared(outputs), finite))

    def judge(self) -> None:
        """Red unless all outputs that were kept are right."""
        kept, self._left = self._left, []
        for left in kept:
            answer = self._answer(left.name, left.which)
            for name, output in left.outputs.items():
                # on the GPU, where it takes a tenth of the host's time; no kernel runs any more
                reference, honest = (t[name].to(output.device, copy=True) for t in answer)
                try:
                    compare(name, output, reference, honest, self.task.tolerance)
                    if name in left.finite and not left.finite[name]:
                        raise Red("NaN in the output", "or infinity, where it is not compared", name)
                except Red as red:
                    red.where = f"after timing on {left.name} inputs: {red.where}"
                    raise
                finally:
                    wipe(reference)
                    wipe(honest)

    def _answer(self, name: str, which: int) -> _Answer:
        """Computed when it is first needed."""
        if (name, which) not in self._answers:
            (part,) = self._judge.each(self._content(name, which))
            exact = self.task.reference(part.problem, part.inputs)
            honest = self.task.honest(part.problem, part.inputs)
            self._answers[name, which] = _Answer(*(self._on_host(found) for found in (exact, honest)))
            for secret in (exact, honest):  # a kernel must not find the answer in freed memory
                for tensor in secret.values():
                    wipe(tensor)
        return self._answers[name, which]

    def _compared(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is compared of outputs, as rows: (rows, row length); copies."""
        (part,) = self._judge.each({})
        return {name: self._rows(tensor).clone() for name, tensor in part.outputs(outputs).items()}

    def _on_host(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same of a reference of these outputs, on the host."""
        return {name: self._rows(tensor).to("cpu", copy=True) for name, tensor in found.items()}

    def _rows(self, tensor: Tensor) -> Tensor:
        """(rows, row length): every row of pieces that are compared; else every row, or CHECKED_ROWS of them
        in equal steps."""
        rows = tensor.reshape(-1, tensor.shape[-1])
        return rows if self._judge.parts else rows[:: max(1, len(rows) // CHECKED_ROWS)]

    def refuse_impossible(self, median_us: float) -> None:
        """Red if no kernel can be so fast."""
        task, gpu = self.task, self.device.gpu
        nbytes = task.nbytes(self.problem)
        in_l2 = self.settings.protocol == "warm" and nbytes * len(self._sets) <= 2 * gpu.l2_bytes
        floor = Roof(gpu, task.flop(self.problem), nbytes, in_l2).floor_us
        if median_us < floor:
            raise Red("impossible time", f"{median_us:.3f} µs, the roofline's floor is {floor:.3f} µs")
