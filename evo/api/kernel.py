"""A trial's kernel, called with tensors: on the GPU that they lie on, else on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from evo.api.declared import dtype_of
from evo.calls import Entry, RecordedCall, problem_of
from evo.device import Device, Kernel, Region
from evo.device.open import is_gpu, open_device, prepare_device, real_gpu
from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.evaluate import EvaluatorSpec
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
        self._devices: dict[str, tuple[EvaluatorSpec, Device]] = {}
        self._loaded: dict[tuple[str, str], tuple[Kernel, LaunchConfig]] = {}

    def __call__(self, *inputs: Any, **buffers: Any) -> Any:
        """Runs it once; see `evo.Trial.kernel`."""
        import torch

        task = self._task
        specs = task.buffers(self._candidate.problem)
        given = _named(specs, inputs, buffers)
        arrays = not any(isinstance(value, torch.Tensor) for value in given.values())
        tensors = {name: _tensor(value, name) for name, value in given.items()}
        places = {str(tensor.device) for tensor in tensors.values()}
        if len(places) != 1:
            raise UsageError(f"tensors lie on {', '.join(sorted(places)) or 'nothing'}", "one device for all")
        place = places.pop()
        problem = _problem(task, self._candidate.problem, tensors)
        specs = task.buffers(problem)
        for spec in specs:
            if spec.name in tensors:
                tensors[spec.name] = _checked(tensors[spec.name], spec)
            else:
                kind = dtype_named(spec.dtype).torch
                tensors[spec.name] = torch.empty(spec.shape, dtype=kind, device=place)
        self._launch(place, problem, specs, given, tensors)
        written = {spec.name: tensors[spec.name] for spec in specs if spec.written}
        found = {name: one.numpy() if arrays else given.get(name, one) for name, one in written.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    @property
    def _task(self) -> Task:
        self._setup = self._setup or self._made()
        return self._setup.task

    def _launch(
        self,
        place: str,
        problem: Problem,
        specs: tuple[BufferSpec, ...],
        given: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
    ) -> None:
        """Starts it on torch's current stream; the emulator waits."""
        import torch

        kernel, launch = self._load(place if is_gpu(place) else "emulator", problem)
        regions = {
            spec.name: Region(
                spec.name,
                tensors[spec.name].data_ptr(),
                spec.nbytes,
                spec.written,
                initialised=spec.read or spec.name in given,
            )
            for spec in specs
        }
        scratch = [torch.zeros(max(1, w.nbytes), dtype=torch.uint8, device=place) for w in launch.workspaces]
        for space, memory in zip(launch.workspaces, scratch, strict=True):
            regions[space.name] = Region(space.name, memory.data_ptr(), space.nbytes, True, space.zeroed)
        kernel.start(launch, regions)

    def _load(self, place: str, problem: Problem) -> tuple[Kernel, LaunchConfig]:
        """The loaded kernel and its launch for `problem` on a device ("cuda:0", "emulator")."""
        if (place, problem.key) not in self._loaded:
            spec, device = self._device(place)
            candidate = spec.program().sibling(self._candidate, problem)
            with spec.compiler() as compiler:
                binary = compiler.compile(candidate.source, candidate.entry, spec.arch)
            self._loaded[place, problem.key] = device.load(binary, candidate.launch), candidate.launch
        return self._loaded[place, problem.key]

    def _device(self, place: str) -> tuple[EvaluatorSpec, Device]:
        if place not in self._devices:
            assert self._setup is not None
            setup = self._setup
            gpu = real_gpu(place) if is_gpu(place) else recorded_gpu(setup.study)
            spec = EvaluatorSpec(
                setup.task.name, place, gpu, setup.limits, setup.cache, folders=setup.folders, nvcc=setup.nvcc
            )
            prepare_device(place, setup.cache)
            self._devices[place] = spec, open_device(place, gpu, cache=setup.cache)
        return self._devices[place]


def _problem(task: Task, own: Problem, tensors: Mapping[str, Tensor]) -> Problem:
    """The problem whose inputs `tensors` are; what their shapes do not say is as in `own`."""
    read = [spec.name for spec in task.buffers(own) if spec.read]
    entries = {name: Entry(name, tuple(tensors[name].shape), dtype_of(tensors[name])) for name in read}
    return problem_of(task, RecordedCall(0, entries), own.flags, own.sizes)


def _named(
    specs: tuple[BufferSpec, ...], inputs: tuple[Any, ...], buffers: Mapping[str, Any]
) -> dict[str, Any]:
    """What was given, by the names of buffers; UsageError where one is missing or not known."""
    read = [spec.name for spec in specs if spec.read]
    known = ", ".join(spec.name for spec in specs)
    if len(inputs) > len(read):
        raise UsageError(f"{len(inputs)} tensors for {len(read)} inputs", f"inputs: {', '.join(read)}")
    given = dict(zip(read, inputs, strict=False))
    if twice := given.keys() & buffers.keys():
        raise UsageError(f"{min(twice)} is given twice", "by its place or by its name")
    given |= buffers
    if unknown := given.keys() - {spec.name for spec in specs}:
        raise UsageError(f"there is no buffer {min(unknown)}", f"buffers: {known}")
    if missing := [name for name in read if name not in given]:
        raise UsageError(f"input {missing[0]} is missing", f"inputs: {', '.join(read)}")
    return given


def _tensor(value: Any, name: str) -> Tensor:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    raise UsageError(f"{name} is a {type(value).__name__}", "a torch tensor or a NumPy array")


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
