"""A kernel on the emulator: of any CUDA or PTX file, or of a candidate, under several schedules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evo.compile import Compiler, toolkits
from evo.device import Region
from evo.device.emulator import EmulatorDevice, EmulatorKernel, verdict
from evo.device.emulator.estimate import Estimate, estimate
from evo.device.emulator.fitted import is_fitted
from evo.device.emulator.interpreter import Execution, Fault
from evo.errors import Uncompilable, UnknownName, Unlaunchable, UsageError
from evo.explain.launch_arguments import Buffer, filled, parse_arguments, parse_launch
from evo.task import Task
from evo.trial import Binary, Candidate, LaunchConfig, Resources

GUARD_BYTES = 256
"""Buffers are aligned to so many bytes, and lie so far from what is beside them."""


@dataclass(frozen=True)
class Run:
    """One schedule: how it went and the bytes of every buffer afterwards."""

    schedule: str
    execution: Execution
    contents: Mapping[str, bytes]

    @property
    def error(self) -> BaseException | None:
        """The Red, Hung or Unlaunchable that the launch ended in, or None."""
        return verdict(self.execution.fault) if self.execution.fault else None


@dataclass(frozen=True)
class Emulation:
    """A kernel under several schedules. `source` is the text that error lines refer to, "" if unknown."""

    kernel: str
    source: str
    launch: LaunchConfig
    gpu: str
    runs: tuple[Run, ...]
    buffers: tuple[Buffer, ...]
    estimate: Estimate | None
    file: str = ""
    """The source's name, where the compiler saw it under another one."""

    @property
    def faults(self) -> dict[str, Fault]:
        """The fault of each schedule that had one."""
        return {run.schedule: run.execution.fault for run in self.runs if run.execution.fault}

    @property
    def changing(self) -> tuple[str, ...]:
        """Buffers whose content differs between schedules that ended well: a race that no check saw."""
        well = [run.contents for run in self.runs if not run.execution.fault]
        return tuple(b.name for b in self.buffers if len({c[b.name] for c in well}) > 1)

    @property
    def green(self) -> bool:
        return not self.faults and not self.changing


def entries_in(source: str) -> list[str]:
    """Names of the `extern "C"` kernels of a CUDA source, in their order."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    code = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)|__cluster_dims__\s*\([^()]*\)", " ", code)
    return re.findall(r'extern\s+"C"\s*\{?[^;{}]*?__global__\s+[^;{}(]*?\b(\w+)\s*\(', code)


def compiled(path: Path, entry: str | None, arch: str, compiler: Compiler | None) -> tuple[Binary, str]:
    """The binary of a .cu or .ptx file, and the source that its line numbers refer to.

    Raises UsageError (no such file or entry), Uncompilable."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UsageError(f"cannot read {path}: {why}", "name a .cu or .ptx file") from error
    ptx = path.suffix == ".ptx"
    known = re.findall(r"\.entry\s+([\w$]+)", text) if ptx else entries_in(text)
    mangled = (entry or "").startswith("_Z")
    if (entry is None and len(known) != 1) or not (known or mangled):
        raise UsageError(
            f"{path.name} has {len(known) or 'no'} kernels" + ("" if ptx else ' declared extern "C"'),
            f"choose one with --entry: {', '.join(known)}" if known else 'write extern "C" __global__ void …',
        )
    if entry is not None and entry not in known and not mangled:
        raise UnknownName.among("kernel", entry, known)
    name = entry or known[0]
    if ptx:
        target = re.search(r"\.target\s+(sm_\w+)", text)
        registers = re.search(r"\.maxnreg\s+(\d+)", text)
        resources = Resources(int(registers[1]) if registers else 32, 0, 0, 0)
        return Binary(b"", text, name, target[1] if target else arch, "none", resources, "", 0.0), ""
    if compiler is None:
        raise UsageError(f"{path.name} needs a compiler", "give a .ptx file, or see evo doctor")
    return _compiled_source(text, name, arch, compiler), text


def _compiled_source(source: str, entry: str, arch: str, compiler: Compiler) -> Binary:
    """Compiled by `compiler`; where that is NVRTC and the source includes a host header, by nvcc if there is
    one."""
    try:
        return compiler.compile(source, entry, arch)
    except Uncompilable as error:
        kit = next((kit for kit in toolkits() if kit.nvcc), None)
        if compiler.tool == "nvcc" or kit is None or "cannot open source file" not in str(error):
            raise
    with Compiler(kit, "nvcc", compiler.cache) as complete:
        return complete.compile(source, entry, arch)


def emulate(
    kernel: EmulatorKernel,
    launch: LaunchConfig,
    buffers: Sequence[Buffer],
    schedules: Sequence[str],
    *,
    source: str = "",
    seed: int = 0,
    nbytes: int | None = None,
    contents: Mapping[str, bytes] | None = None,
) -> Emulation:
    """Run `kernel` under every schedule on fresh, equal buffers. A fault ends its schedule, not the
    others. `contents` are those of buffers that are not filled as they say. `nbytes` is the traffic that no
    kernel can do without: by default every buffer is read or written once, and one that is both, twice."""
    if nbytes is None:
        nbytes = sum(b.nbytes * (2 if b.role == "inout" else 1) for b in buffers)
    device, given = kernel.device, contents or {}
    runs = []
    for schedule in schedules:
        storage = {}
        for buffer in buffers:
            # aligned like cudaMalloc's, guarded against what lies beside it on the heap
            raw = np.empty(buffer.nbytes + 2 * GUARD_BYTES, np.uint8)
            start = -raw.ctypes.data % GUARD_BYTES
            storage[buffer.name] = raw[start : start + buffer.nbytes]
            known = given.get(buffer.name)
            storage[buffer.name][:] = (
                filled(buffer, seed) if known is None else np.frombuffer(known, np.uint8)
            )
        regions = {
            b.name: Region(b.name, storage[b.name].ctypes.data, b.nbytes, b.role != "in", b.fill != "poison")
            for b in buffers
        }
        execution = kernel.execute(launch, regions, schedule, profile=True)
        runs.append(Run(schedule, execution, {name: array.tobytes() for name, array in storage.items()}))
    well = next((run for run in runs if not run.execution.fault), None)
    model = None
    if well and device.gpu.clock_ghz:
        model = estimate(well.execution.counters, kernel.binary.resources, launch, device.gpu, nbytes)
    return Emulation(kernel.entry.name, source, launch, device.name, tuple(runs), tuple(buffers), model)


def emulate_file(
    path: Path,
    device: EmulatorDevice,
    compiler: Compiler | None,
    launch: str,
    arguments: Sequence[str],
    *,
    entry: str | None = None,
    schedules: Sequence[str] = (),
    seed: int = 0,
) -> Emulation:
    """The whole command: compile `path`, make the buffers, run every schedule (all of the device's by
    default).

    Raises UsageError, Uncompilable, Unlaunchable."""
    args, buffers = parse_arguments(arguments)
    config = LaunchConfig(**parse_launch(launch), args=args)
    binary, source = compiled(path, entry, device.gpu.arch, compiler)
    try:
        kernel = device.load(binary, config)
        result = emulate(kernel, config, buffers, schedules or device.schedules, source=source, seed=seed)
    except Unlaunchable as error:
        if error.reason != "arguments":
            raise
        hint = "an --arg for each: in:f16:1024, out:f32:64x64, i32:1024"
        raise UsageError(error.message, hint) from error
    return replace(result, file=path.name) if source else result


def emulate_candidate(
    candidate: Candidate,
    task: Task,
    device: EmulatorDevice,
    compiler: Compiler,
    schedules: Sequence[str] = (),
    *,
    seed: int = 0,
) -> Emulation:
    """The same for a candidate of a task, on plain inputs of that task.

    Raises Uncompilable, Unlaunchable."""
    import torch

    problem = candidate.problem
    binary = compiler.compile(candidate.source, candidate.entry, device.gpu.arch)
    kernel = device.load(binary, candidate.launch)
    specs = task.buffers(problem)
    buffers = [Buffer(s.name, s.role, s.dtype, s.shape, "normal" if s.read else "poison") for s in specs] + [
        Buffer(w.name, "inout", "u8", (w.nbytes,), "zeros" if w.zeroed else "poison")
        for w in candidate.launch.workspaces
    ]
    inputs = task.timing_tensors(problem, task.families.plain, seed, "cpu")
    result = emulate(
        kernel,
        candidate.launch,
        buffers,
        schedules or device.schedules,
        source=candidate.source,
        seed=seed,
        nbytes=task.nbytes(problem),
        contents={name: x.contiguous().view(torch.uint8).numpy().tobytes() for name, x in inputs.items()},
    )
    fitted = is_fitted(problem.task, candidate.template)
    return replace(result, estimate=result.estimate and replace(result.estimate, fitted=fitted))
