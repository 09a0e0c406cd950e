"""The memory of one case's launches, and what is to be known of them afterwards: kept from case to case.

What is looked at after a small problem's launches (reference, honest computation, limits, errors, damage) is
some 80 GPU kernels of a few microseconds each, which take the host longer to start (0.7 ms) than the GPU to
run. They depend on the problem alone, not on the candidate: so on a GPU a problem's memory is kept, the
second time its look is captured as a graph, and from then on replayed over whatever inputs the case has. It
is the same code, and the reference is still computed after the launches, and wiped before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from evo.device import Device
from evo.gate.memory import GuardedMemory
from evo.gate.tolerance import ErrorLimits, errors_of, limits_of
from evo.task import Task
from evo.trial import Problem, Workspace

if TYPE_CHECKING:
    from torch import Tensor

IMAGE_BYTES = 256 << 20
"""Memory for copies of what launches left, before they are looked at; always enough for one."""
KEPT_BYTES, KEPT_PART = 1 << 30, 32
"""Memory that kept memories may take, or one part in so many of the GPU's if that is more; then the oldest
give way, and a look that is captured anew takes 2 ms."""
LARGEST_FLOP = 1e10
"""Problems with more work keep a GPU busy by themselves: their memories are not kept."""


class CaseMemory:
    """Guarded memory, and `images` of it after each of several launches."""

    def __init__(
        self,
        task: Task,
        problem: Problem,
        guarded: GuardedMemory,
        launches: int,
        deterministic: bool,
        recorder: Recorder | None,
    ) -> None:
        self.guarded = guarded
        self._images = guarded.room_for_images(launches)
        self.images = list(self._images)
        self.nbytes = guarded.nbytes * (2 + launches)
        self._task, self._problem, self._deterministic = task, problem, deterministic
        self._recorder = recorder
        self._looks = 0
        self._graph: Any = None
        self._found: Tensor | None = None

    def look(self, count: int, first: Tensor | None = None) -> Tensor:
        """What `count` launches left in the images, begun but not waited for: whether something is suspect
        (0 or 1: damage, or other bits than the `first` launch), and four numbers, those of `errors_of`, for
        each output that is `judged`. They hold until the next look."""
        if self._recorder is None or first is not None or count < len(self.images):
            return self._look(count, first)
        self._looks += 1
        if self._looks == 2:
            self._graph, self._found = self._recorder.record(lambda: self._look(count, None))
        if self._graph is None or self._found is None:
            return self._look(count, None)
        self._graph.replay()
        return self._found

    def judged(self, count: int, first: Tensor | None = None) -> Sequence[Tensor]:
        """The images whose numbers are judged: of the first launch; of each, where bits may differ."""
        if not self._deterministic:
            return self.images[:count]
        return self.images[:1] if first is None else ()

    def limits(self) -> dict[str, ErrorLimits]:
        """What each output must be. `ErrorLimits.wipe` it after use."""
        inputs = self.guarded.inputs()
        references = self._task.reference(self._problem, inputs)
        limits = {}
        for name, honest in self._task.honest(self._problem, inputs).items():
            limits[name] = limits_of(references[name], honest, self._task.tolerance)
            honest.zero_()  # as good as an answer, and its memory goes to the next allocation
        return limits

    def _look(self, count: int, first: Tensor | None) -> Tensor:
        import torch

        like = (self.images[0] if first is None else first) if self._deterministic else None
        found = [self.guarded.unlike(self._images[:count], like).double()]
        judged = self.judged(count, first)
        limits = self.limits() if judged else {}
        for image in judged:
            found += [errors_of(out, limits[name]) for name, out in self.guarded.outputs(image).items()]
        for limit in limits.values():
            limit.wipe()
        return torch.cat(found)


class Recorder:
    """Captures work on one GPU into graphs that share their memory: they are replayed one at a time."""

    def __init__(self, torch_device: str) -> None:
        import torch

        self._device = torch_device
        self.memory_bytes: int = torch.cuda.get_device_properties(torch_device).total_memory
        self._stream = torch.cuda.Stream(torch_device)
        self._memory = torch.cuda.graph_pool_handle()
        self._refused = False
        self._warm = False

    def record(self, work: Any) -> tuple[Any, Tensor | None]:
        """The graph of `work`, and what it gives; (None, None) if it cannot be captured: it waits on its way,
        as the Python code of a task may."""
        import torch

        if self._refused:
            return None, None
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            if not self._warm:  # libraries set themselves up for the stream
                work()
                self._warm = True
                torch.cuda.synchronize(self._device)
            graph.capture_begin(pool=self._memory, capture_error_mode="relaxed")
            try:
                found = work()
            except RuntimeError:
                self._refused = True
                with suppress(RuntimeError):
                    graph.capture_end()
                return None, None
            graph.capture_end()
        return graph, found


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
        shift: int,
        launches: int,
        deterministic: bool,
    ) -> CaseMemory:
        """A memory for up to `launches` launches, fewer where their images take too much memory."""
        key = (problem.key, tuple(workspaces), shift, launches, deterministic)
        memory = self._kept.pop(key, None)
        if memory is None:
            where = self._device.torch_device
            guarded = GuardedMemory(self._task.buffers(problem), workspaces, torch_device=where, shift=shift)
            # where launches are dear, one is looked at before the next
            most = max(1, IMAGE_BYTES // guarded.nbytes) if self._device.launches_are_cheap else 1
            small = launches <= most and self._task.flop(problem) <= LARGEST_FLOP
            recorder = self._recorder if small else None
            memory = CaseMemory(self._task, problem, guarded, min(launches, most), deterministic, recorder)
            if recorder is None:
                return memory
            self._kept_bytes += memory.nbytes
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
