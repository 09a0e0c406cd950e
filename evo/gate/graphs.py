"""The memory of one case's launches, and what is to be known of them afterwards: kept from case to case.

What is looked at after a small problem's launches (reference, honest computation, limits, errors, damage) is
some 80 GPU kernels of a few microseconds each, which take the host longer to start (0.7 ms) than the GPU to
run. They depend on the problem alone, not on the candidate: so on a GPU a problem's memory is kept, the
second time its look is captured as a graph, and from then on replayed over whatever inputs the case has. It
is the same code, and the reference is still computed after the launches, and wiped before the next.

The first time a task may make constants that it keeps; made while work is captured, they would hold nothing
until that graph runs. Where a task keeps none (`Task.keeps_tensors`) its look is captured the first time,
which takes the host no longer than to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from evo.device import Device
from evo.gate.judge import Judge
from evo.gate.memory import GuardedMemory
from evo.gate.tolerance import Errors
from evo.task import Task
from evo.trial import Problem, Workspace

if TYPE_CHECKING:
    from torch import Tensor

IMAGE_BYTES = 256 << 20
"""Memory for copies of what launches left, before they are looked at; always enough for one."""
KEPT_BYTES, KEPT_PART = 1 << 30, 32
"""Memory that kept memories may take, or one part in so many of the GPU's if that is more; then the oldest
give way, and a look that is captured anew takes 2 ms."""
MOST_REFUSALS = 8
"""Looks of a task that could not be captured, after which none is tried."""
LARGEST_FLOP = 1e10
"""Problems with more work keep a GPU busy by themselves: their memories are not kept."""


class CaseMemory:
    """Guarded memory, and `images` of it after each of several launches, or before and after each; where
    there is one, and nothing is recorded, it is the memory itself. `judge` compares the outputs."""

    def __init__(
        self,
        judge: Judge,
        guarded: GuardedMemory,
        launches: int,
        deterministic: bool,
        recorder: Recorder | None,
    ) -> None:
        self.judge, self.guarded = judge, guarded
        apart = launches > 1 or recorder is not None  # a memory that is kept may be placed elsewhere
        self._images = guarded.room_for_images(launches) if apart else guarded.content[None]
        self.images = list(self._images)
        self.nbytes = guarded.nbytes * (2 + (launches if apart else 0))
        self._deterministic = deterministic
        self._recorder = recorder
        self._captured: dict[object, Captured] = {}

    def look(self, count: int, again: bool = False) -> Tensor:
        """What `count` launches left in the images, begun but not waited for: whether something is suspect
        (0 or 1: damage, or other bits than the first launch), and four numbers, those of `errors_of`, for
        each output that is `judged`. They hold until the next look; in pinned memory they stand once the
        device is there. `again`: others of these inputs came before, and were looked at."""
        if again or count < len(self.images):
            return self._look(count, again)
        return self.found_by("look", lambda: self._look(count, again=False))

    def found_by(self, name: object, work: Callable[[], Tensor]) -> Tensor:
        """What `work` finds in the images, (n,), fp64, begun but not waited for. Where looks are captured,
        that of the first or the second call of this name is replayed from then on."""
        if self._recorder is None:
            return work()
        if name not in self._captured:
            self._captured[name] = Captured(self._recorder, at_once=not self.judge.task.keeps_tensors)
        return self._captured[name].found_by(work)

    def judged(self, count: int, again: bool = False) -> Sequence[Tensor]:
        """The images whose numbers are judged: of the first launch; of each, where bits may differ."""
        if not self._deterministic:
            return self.images[:count]
        return () if again else self.images[:1]

    def befores_and_afters(self, count: int) -> tuple[Tensor, Tensor] | None:
        """Images for before and after so many launches, (count, nbytes) each; None where there are fewer."""
        if len(self.images) < 2 * count:
            return None
        return self._images[:count], self._images[count : 2 * count]

    def two_images(self) -> tuple[Tensor, Tensor]:
        """Images, none of which is the memory itself."""
        first, other = self.images[:2] if len(self.images) > 1 else self.guarded.room_for_images(2)
        return first, other

    def first_outputs(self) -> dict[str, Tensor]:
        """What the first launch wrote, once it was looked at; kept where all are to be equal."""
        return self.guarded.outputs(self.images[0]) if self._recorder else self.guarded.expected_outputs()

    def refuse(self, name: str, image: Tensor, found: Errors) -> None:
        """Raises the Red of an output that was `found` to be wrong."""
        self.judge.refuse(self.guarded.inputs(), self.guarded.outputs(image), name, found)

    def _look(self, count: int, again: bool) -> Tensor:
        import torch

        if self._deterministic and not again:
            self.guarded.expect_outputs(self.images[0])
        found = self.guarded.unlike(self._images[:count], same_outputs=self._deterministic).double()
        outputs = [self.guarded.outputs(image) for image in self.judged(count, again)]
        found = torch.cat([found, *self.judge.errors(self.guarded.inputs(), outputs)])
        if self._recorder:
            self.guarded.forget_outputs()
        return found


class Captured:
    """A look that a graph is made of when it comes the second time; `at_once`: the first time, if it can be
    captured then."""

    def __init__(self, recorder: Recorder, at_once: bool) -> None:
        self._recorder, self._at_once = recorder, at_once
        self._count = 0
        self._graph: Any = None
        self._on_host: Tensor | None = None
        """Where a GPU writes what is found by itself."""

    def found_by(self, work: Callable[[], Tensor]) -> Tensor:
        """What `work` finds, (n,), fp64; where it is captured it stands in pinned memory once the device is
        there."""
        self._count += 1
        if self._graph is None and (self._count == 2 or (self._count == 1 and self._at_once)):
            self._graph = self._recorder.record(lambda: self._write(work()), counts=self._count == 2)
        if self._graph is None:
            return work()
        self._graph.replay()
        assert self._on_host is not None
        return self._on_host

    def _write(self, found: Tensor) -> None:
        if self._on_host is None:
            self._on_host = pinned(found.numel())
        self._on_host.copy_(found, non_blocking=True)


PINNED_NUMBERS, SPARE_NUMBERS = 1 << 16, 1 << 12
"""Numbers of the host's memory that are asked for at once; so many are left before work is captured, which
had better ask for none."""
_PINNED: list[Tensor] = []
"""What is left of them. It is never given back: where a context is dead, torch cannot free it and ends the
process."""


def pinned(count: int) -> Tensor:
    """(count,), fp64: memory of the host that a GPU writes to by itself."""
    import torch

    if not _PINNED or _PINNED[-1].numel() < (count or SPARE_NUMBERS):
        _PINNED.append(torch.empty(max(count, PINNED_NUMBERS), dtype=torch.float64, pin_memory=True))
    room, _PINNED[-1] = _PINNED[-1][:count], _PINNED[-1][count:]
    return room


class Recorder:
    """Captures work on one GPU into graphs that share their memory: they are replayed one at a time.

    One graph is never dropped: torch refuses to capture into a pool whose graphs have all gone while
    tensors of it are left."""

    def __init__(self, torch_device: str) -> None:
        import torch

        self._device = torch_device
        self.memory_bytes: int = torch.cuda.get_device_properties(torch_device).total_memory
        self._stream = torch.cuda.Stream(torch_device)
        self._memory = torch.cuda.graph_pool_handle()
        self._anchor = torch.cuda.CUDAGraph()
        self._refusals = 0
        self._warm = False

    def record(self, work: Callable[[], object], counts: bool = True) -> Any:
        """The graph of `work`; None if it cannot be captured: it waits on its way, as the Python code of a
        task may, or draws numbers. After MOST_REFUSALS that count none is tried any more."""
        import torch

        if self._refusals == MOST_REFUSALS:
            return None
        pinned(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            if not self._warm:  # libraries set themselves up for the stream
                torch.cuda.synchronize(self._device)
                work()
                torch.cuda.synchronize(self._device)
                self._anchor.capture_begin(pool=self._memory, capture_error_mode="relaxed")
                torch.zeros((), device=self._device)
                self._anchor.capture_end()
                self._warm = True
            graph.capture_begin(pool=self._memory, capture_error_mode="relaxed")
            try:
                work()
            except RuntimeError:
                self._refusals += counts
                with suppress(RuntimeError):
                    graph.capture_end()
                return None
            graph.capture_end()
        return graph


class CaseMemories:
    """The memories of one task on one device. Not for several threads."""

    def __init__(self, task: Task, device: Device) -> None:
        self._task, self._device = task, device
        self._recorder = Recorder(device.torch_device) if device.measures else None
        self._kept: dict[tuple[object, ...], CaseMemory] = {}
        self._kept_bytes = 0
        whole = self._recorder.memory_bytes if self._recorder else 0
        self._most_bytes = max(KEPT_BYTES, whole // KEPT_PART)

    def of(
        self,
        problem: Problem,
        workspaces: Sequence[Workspace],
        shifted: bool,
        launches: int,
        deterministic: bool,
        judge: Judge,
    ) -> CaseMemory:
        """A memory for up to `launches` launches, fewer where their images take too much memory. Where the
        `judge` compares a part of the problem alone, the part is another each time, and nothing is kept."""
        key = (problem.key, tuple(workspaces), launches, deterministic)
        memory = None if judge.parts else self._kept.pop(key, None)
        if memory is None:
            where = self._device.torch_device
            buffers = self._task.buffers(problem)
            guarded = GuardedMemory(buffers, workspaces, torch_device=where, shifted=shifted)
            # where launches are dear, one is looked at before the next
            most = max(1, IMAGE_BYTES // guarded.nbytes) if self._device.launches_are_cheap else 1
            small = launches <= most and self._task.flop(problem) <= LARGEST_FLOP and not judge.parts
            recorder = self._recorder if small else None
            memory = CaseMemory(judge, guarded, min(launches, most), deterministic, recorder)
            if recorder is None:
                return memory
            self._kept_bytes += memory.nbytes
        memory.guarded.place(shifted)
        self._kept[key] = memory  # the newest comes last
        while len(self._kept) > 1 and self._kept_bytes > self._most_bytes:
            self._kept_bytes -= self._kept.pop(next(iter(self._kept))).nbytes
        return memory


_OF_DEVICE: WeakKeyDictionary[Device, dict[str, CaseMemories]] = WeakKeyDictionary()


def memories_of(task: Task, device: Device) -> CaseMemories:
    """The memories of `task` on `device`: on a GPU the same ones for every candidate."""
    if not device.measures:
        return CaseMemories(task, device)
    of_tasks = _OF_DEVICE.setdefault(device, {})
    if task.name not in of_tasks:
        of_tasks[task.name] = CaseMemories(task, device)
    return of_tasks[task.name]
