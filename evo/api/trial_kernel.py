"""A trial's kernel, called with tensors: on the GPU that they lie on, else on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from evo.api.arguments import named_buffers, problem_of_tensors
from evo.api.launching import Launcher, launcher_at
from evo.device import Kernel
from evo.device.open import is_gpu, real_gpu
from evo.dtype import dtype_named
from evo.errors import UsageError, kind_of
from evo.evaluate.program import Program
from evo.study import Setup, recorded_gpu
from evo.task import BufferSpec, Task
from evo.trial import Candidate, LaunchConfig, Problem

if TYPE_CHECKING:
    from torch import Tensor


class TrialKernel:
    """The kernel of one trial, compiled once for each device and problem that it meets."""

    def __init__(self, candidate: Candidate, setup: Callable[[], Setup]) -> None:
        self._candidate, self._made = candidate, setup
        self._setup: Setup | None = None
        self._loaded: dict[tuple[str, str], tuple[Launcher, Kernel, LaunchConfig]] = {}

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Runs it once; see `evo.Trial.kernel`."""
        import torch

        task = self._task
        specs = task.buffers(self._candidate.problem)
        unpacked = tuple(s for s in specs if s.name not in task.packings or s.name in buffers)
        given = named_buffers(unpacked, inputs, buffers)
        arrays = not any(isinstance(value, torch.Tensor) for value in given.values())
        tensors = {name: _tensor(value, name) for name, value in given.items()}
        places = {str(tensor.device) for tensor in tensors.values()}
        if len(places) != 1:
            raise UsageError(f"tensors lie on {', '.join(sorted(places)) or 'nothing'}", "one device for all")
        place = places.pop()
        problem = _problem(task, self._candidate.problem, tensors)
        for name in task.packings.keys() - tensors.keys():
            tensors[name] = task.packings[name].pack(problem, tensors)
        specs = task.buffers(problem)
        for spec in specs:
            if spec.name in tensors:
                tensors[spec.name] = _checked(tensors[spec.name], spec)
            else:
                kind = dtype_named(spec.dtype).torch
                tensors[spec.name] = torch.empty(spec.shape, dtype=kind, device=place)
        launcher, kernel, launch = self._load(place, problem)
        launcher.start(kernel, launch, specs, tensors, given)
        written = {spec.name: tensors[spec.name] for spec in specs if spec.written}
        found = {name: one.numpy() if arrays else given.get(name, one) for name, one in written.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    @property
    def _task(self) -> Task:
        self._setup = self._setup or self._made()
        return self._setup.task

    def _load(self, place: str, problem: Problem) -> tuple[Launcher, Kernel, LaunchConfig]:
        """The loaded kernel and its launch for `problem` where tensors on `place` run."""
        if (place, problem.key) not in self._loaded:
            assert self._setup is not None
            setup = self._setup
            gpu = real_gpu(place) if is_gpu(place) else recorded_gpu(setup.study)
            at = launcher_at(place if is_gpu(place) else "emulator", gpu, setup.cache, setup.nvcc)
            program = Program(setup.task, setup.folders, gpu, setup.limits)
            candidate = program.sibling(self._candidate, problem)
            self._loaded[place, problem.key] = at, at.load(candidate), candidate.launch
        return self._loaded[place, problem.key]


def _problem(task: Task, own: Problem, tensors: Mapping[str, Tensor]) -> Problem:
    """The problem whose inputs `tensors` are; what their shapes do not say is as in `own`."""
    read = {s.name: tensors[s.name] for s in task.buffers(own) if s.read and s.name in tensors}
    return problem_of_tensors(task, read, own.flags, own.sizes)


def _tensor(value: Any, name: str) -> Tensor:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    raise UsageError(f"{name} is {kind_of(value)}", "a torch tensor or a NumPy array")


def _checked(tensor: Tensor, spec: BufferSpec) -> Tensor:
    """The tensor as a kernel takes it: of the buffer's type and shape, contiguous."""
    wanted = dtype_named(spec.dtype).torch
    if tensor.dtype != wanted:
        raise UsageError(f"{spec.name} is of {tensor.dtype}", f"{spec.name}.to({wanted})")
    if tuple(tensor.shape) != spec.shape:
        raise UsageError(f"{spec.name} has the shape {tuple(tensor.shape)}", f"it is {spec.shape} here")
    if not tensor.is_contiguous() and spec.written:
        raise UsageError(f"{spec.name} is written and not contiguous", f"{spec.name}.contiguous()")
    return tensor.contiguous()
