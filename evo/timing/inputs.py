"""Sets of inputs that launches rotate among, and the judgement of what timed launches left behind."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from evo.device import Device, Kernel, Region
from evo.errors import Red
from evo.gate.tolerance import compare, wipe
from evo.gpu import Gpu, Roof
from evo.task import Baseline, Task
from evo.timing.stopwatch import Call, TimingSettings
from evo.trial import LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor

CHECKED_ROWS = 4096
"""Rows of an output that are judged after timing."""
JUDGED_SETS = 4
"""Sets whose outputs may be judged; which ones of a candidate are is drawn. References are not free, and
`cold` has many sets."""


@dataclass(frozen=True)
class _Set:
    """One set of inputs, an output of its own, and what the output must be (on the host, where no kernel
    can read it), if it is one of those that are judged."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    in_place: Mapping[str, Tensor] = field(default_factory=dict)
    """What those inputs hold at first that a kernel changes in place. Timed launches change them again and
    again: one launch on the first content is judged."""
    reference: Mapping[str, Tensor] = field(default_factory=dict)
    honest: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class _Launch:
    """Enqueues a kernel; holds the buffers that it reads and writes."""

    kernel: Kernel
    launch: LaunchConfig
    read: Mapping[str, Tensor]
    written: Mapping[str, Tensor]

    def __call__(self) -> None:
        self.kernel.start(self.launch, self._regions)

    @cached_property
    def _regions(self) -> dict[str, Region]:
        """Workspaces and inputs are alike here: the gate has checked what is written."""
        return {
            name: Region(name, t.data_ptr(), t.numel() * t.element_size(), name in self.written)
            for name, t in {**self.read, **self.written}.items()
        }


def count_of_sets(gpu: Gpu, nbytes: int, settings: TimingSettings) -> int:
    """Warm: few. Cold: so many that twice the L2 passes by before a set comes round again."""
    if settings.protocol == "warm":
        return settings.sets
    return 1 + max(1, math.ceil(2 * gpu.l2_bytes / nbytes))


class InputSets:
    """The sets of one problem on one GPU; fresh for each seed."""

    def __init__(
        self, device: Device, task: Task, problem: Problem, settings: TimingSettings, seed: int
    ) -> None:
        self.device, self.task, self.problem, self.settings = device, task, problem, settings
        self._rng = random.Random(seed)
        count = count_of_sets(device.gpu, task.nbytes(problem), settings)
        self._sets = [self._with_answer(seed + i) for i in range(min(count, JUDGED_SETS))]
        self._sets += [self._without_answer(seed + i) for i in range(len(self._sets), count)]
        self._due: set[int] = set()
        """Whose outputs are judged next."""
        self._launches: list[_Launch] = []
        """Those of the kernel that is timed now, one a set."""

    def __len__(self) -> int:
        return len(self._sets)

    def _with_answer(self, seed: int) -> _Set:
        import torch

        task, problem = self.task, self.problem
        inputs = task.inputs(problem, task.families.plain, seed, self.device.torch_device)
        reference = task.reference(problem, inputs)
        honest = task.honest(problem, inputs)
        outputs = {name: torch.empty_like(tensor) for name, tensor in honest.items() if name not in inputs}
        in_place = {name: inputs[name].clone() for name in honest if name in inputs}
        made = _Set(inputs, outputs, in_place, _on_host(reference), _on_host(honest))
        for secret in (reference, honest):  # a kernel must not find the answer in freed memory
            for tensor in secret.values():
                wipe(tensor)
        return made

    def _without_answer(self, seed: int) -> _Set:
        import torch

        task, problem = self.task, self.problem
        inputs = task.inputs(problem, task.families.plain, seed, self.device.torch_device)
        return _Set(inputs, {n: torch.empty_like(t) for n, t in self._sets[0].outputs.items()})

    # ---- calls

    def of_baseline(self, run: Baseline) -> list[Call]:
        """Calls of a baseline, one a set."""
        return [partial(run, made.inputs) for made in self._sets]

    def of_kernel(self, kernel: Kernel, launch: LaunchConfig) -> list[Call]:
        """Launches of a kernel, one a set; they share the workspaces, for they are chained."""
        import torch

        where = self.device.torch_device
        shared = {w.name: torch.zeros(w.nbytes, dtype=torch.uint8, device=where) for w in launch.workspaces}
        self._launches = [
            _Launch(kernel, launch, {**made.inputs, **shared}, made.outputs) for made in self._sets
        ]
        return list(self._launches)

    # ---- judgement

    def clear(self) -> None:
        """Fills all outputs with NaN, and waits."""
        for made in self._sets:
            for output in made.outputs.values():
                wipe(output)
        self.device.finish()  # the stream of the samples does not wait for the one of the fills

    def turned(self, calls: Sequence[Call], launches: int) -> list[Call]:
        """`calls`, turned so that the last of `launches` falls on a set that has an answer: any of them.
        `judge` will look at that one and at another one."""
        count, answered = len(calls), min(len(calls), JUDGED_SETS)
        last = self._rng.randrange(answered)
        order = [(last + 1 - launches + i) % count for i in range(count)]
        written = order if launches >= count else order[:launches]
        self._due = {last, self._rng.choice([which for which in written if which < answered])}
        return [calls[which] for which in order]

    def judge(self) -> None:
        """Red unless the outputs of the timed runs are right: of the last launch, and of another one."""
        self.device.finish()
        for which in self._due:
            made = self._sets[which]
            if made.in_place:
                for name, content in made.in_place.items():
                    made.inputs[name].copy_(content)
                self._launches[which]()
                self.device.finish()
            changed = {name: made.inputs[name] for name in made.in_place}
            for name, output in {**made.outputs, **changed}.items():
                # on the GPU, where it takes a tenth of the host's time; no kernel runs any more
                reference, honest = (t[name].to(output.device) for t in (made.reference, made.honest))
                try:
                    compare(name, _some_rows(output), reference, honest, self.task.tolerance)
                except Red as red:
                    red.where = f"after timing: {red.where}"
                    raise
                finally:
                    wipe(reference)
                    wipe(honest)

    def refuse_impossible(self, median_us: float) -> None:
        """Red if no kernel can be so fast."""
        task, gpu = self.task, self.device.gpu
        nbytes = task.nbytes(self.problem)
        in_l2 = self.settings.protocol == "warm" and nbytes * len(self._sets) <= 2 * gpu.l2_bytes
        floor = Roof(gpu, task.flop(self.problem), nbytes, in_l2).floor_us
        if median_us < floor:
            raise Red("impossible time", f"{median_us:.3f} µs, the roofline's floor is {floor:.3f} µs")


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rows to be judged, flattened to (rows, row length), on the host."""
    return {name: _some_rows(tensor).cpu() for name, tensor in tensors.items()}


def _some_rows(tensor: Tensor) -> Tensor:
    """(rows, row length): every row, or CHECKED_ROWS of them in equal steps."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows[:: max(1, len(rows) // CHECKED_ROWS)]
