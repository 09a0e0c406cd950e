"""`evo emulate`: run a kernel of any CUDA or PTX file on the emulator, with buffers described in words.

    --launch grid=8x8,block=128,smem=40960         (cluster=2 for two CTAs a cluster; y and z default to 1)
    --arg in:f16:512x64            an input, N(0,1) unless told: normal uniform ones zeros arange poison, or
    a number
    --arg out:f16:512x64           written by the kernel, uninitialised before; inout: both
    --arg map:in:f16:512x64:64x64:128   a TMA tensor map over such a buffer: its box, and its swizzle in bytes
    --arg i32:512  --arg f32:0.18  numbers: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 bool

A buffer may be named: `q=in:f16:512x64`. Shapes are outermost first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evo.compile import Compiler, toolkits
from evo.device import Region
from evo.device.emulator import EmulatorDevice, EmulatorKernel, place_of, verdict
from evo.device.emulator.estimate import Estimate, estimate
from evo.device.emulator.fitted import is_fitted
from evo.device.emulator.interpreter import Execution, Fault, Work
from evo.dtype import DTYPES, SCALARS, dtype_named, is_dtype
from evo.errors import CandidateError, Uncompilable, UsageError
from evo.task import BufferSpec
from evo.trial import Argument, Binary, BufferArg, Candidate, LaunchConfig, Resources, ScalarArg, TensorMapArg

FILLS = ("normal", "uniform", "ones", "zeros", "arange", "poison")
GUARD_BYTES = 256
Role = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Buffer:
    """What `--arg` said of a buffer. `shape` is outermost first; `fill` a word of FILLS or a number's
    text."""

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    fill: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dtype_named(self.dtype).nbytes


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
    """How the source is called, where the compiler saw it under another name."""

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


# --- what the person wrote
# -----------------------------------------------------------------------------------


def parse_launch(text: str) -> dict[str, Any]:
    """`grid=8x8,block=128,smem=40K,cluster=2` -> fields of a LaunchConfig; UsageError if it is malformed."""
    hint = "write it like grid=8x8,block=128,smem=40960,cluster=2"
    found: dict[str, Any] = {"grid": (1, 1, 1), "block": (1, 1, 1), "smem": 0, "cluster": (1, 1, 1)}
    for part in filter(None, re.split(r"[,\s]+", text)):
        name, _, value = part.partition("=")
        if name not in found:
            raise UsageError(f"unknown part of --launch: {name}", hint)
        if name == "smem":
            size = re.fullmatch(r"(\d+)(K?)", value)
            if not size:
                raise UsageError(f"malformed size: {part}", hint)
            found[name] = int(size[1]) * (1024 if size[2] else 1)
        else:
            found[name] = _three(value, part, hint)
    return {"smem_bytes" if k == "smem" else k: v for k, v in found.items()}


def _three(value: str, part: str, hint: str) -> tuple[int, int, int]:
    sizes = value.split("x")
    if len(sizes) > 3 or not all(s.isdigit() and int(s) > 0 for s in sizes):
        raise UsageError(f"malformed size: {part}", hint)
    x, y, z = [int(s) for s in sizes] + [1] * (3 - len(sizes))
    return x, y, z


def parse_arguments(texts: Sequence[str]) -> tuple[tuple[Argument, ...], tuple[Buffer, ...]]:
    """The kernel's arguments in order, and the buffers that they need. Raises UsageError."""
    arguments: list[Argument] = []
    buffers: list[Buffer] = []
    for i, text in enumerate(texts):
        name, _, rest = text.rpartition("=")
        kind, *fields = rest.split(":")
        name = name or f"arg{i}"
        if is_dtype(kind) and dtype_named(kind).name in SCALARS:
            arguments.append(_scalar(kind, fields, text))
        elif kind == "map":
            buffer, arg = _tensor_map(name, fields, text)
            buffers.append(buffer)
            arguments.append(arg)
        elif kind in ("in", "out", "inout"):
            buffers.append(_buffer(name, kind, fields, text))
            arguments.append(BufferArg(name))
        else:
            raise UsageError(
                f"unknown kind of argument: {text}", f"in, out, inout, map or a number: {', '.join(SCALARS)}"
            )
    names = [b.name for b in buffers]
    if len(set(names)) != len(names):
        raise UsageError("two buffers have one name", f"names: {', '.join(names)}")
    return tuple(arguments), tuple(buffers)


def _scalar(kind: str, fields: Sequence[str], text: str) -> ScalarArg:
    dtype = dtype_named(kind)
    try:
        (value,) = fields
        number = float(value) if dtype.floating else int(value, 0)
    except ValueError:
        raise UsageError(f"malformed number: {text}", "write it like i32:512 or f32:0.125") from None
    try:
        dtype.pack(number)
    except ValueError as error:
        raise UsageError(str(error), f"a number that {dtype.name} can hold") from error
    return ScalarArg(number, "f32" if kind == "f32" else dtype.name)  # type: ignore[arg-type]


def _buffer(name: str, role: str, fields: Sequence[str], text: str) -> Buffer:
    hint = "write it like in:f16:512x64:normal or out:f32:4096"
    if len(fields) not in (2, 3):
        raise UsageError(f"malformed buffer: {text}", hint)
    dtype, shape, *fill = fields
    if not is_dtype(dtype):
        raise UsageError(f"unknown type: {dtype}", f"one of {', '.join(DTYPES)}")
    if not re.fullmatch(r"\d+(x\d+)*", shape) or not math.prod(sizes := [int(s) for s in shape.split("x")]):
        raise UsageError(f"malformed shape: {text}", hint)
    how = fill[0] if fill else "normal" if role != "out" else "poison"
    if how not in FILLS and not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?|nan|-?inf", how):
        raise UsageError(f"unknown fill: {how}", f"one of {', '.join(FILLS)}, or a number")
    return Buffer(name, role, dtype, tuple(sizes), how)  # type: ignore[arg-type]


def _tensor_map(name: str, fields: Sequence[str], text: str) -> tuple[Buffer, TensorMapArg]:
    hint = "write it like map:in:f16:512x64:64x64:128 (role, type, shape, box, swizzle)"
    if len(fields) not in (4, 5) or fields[0] not in ("in", "out", "inout"):
        raise UsageError(f"malformed tensor map: {text}", hint)
    role, dtype, shape, box, *swizzle = fields
    buffer = _buffer(name, role, [dtype, shape], text)
    sizes = box.split("x")
    if (
        len(sizes) != len(buffer.shape)
        or not all(s.isdigit() for s in sizes)
        or (swizzle and not swizzle[0].isdigit())
    ):
        raise UsageError(f"malformed tensor map: {text}", hint)
    element = dtype_named(dtype)
    strides = [math.prod(buffer.shape[i + 1 :]) * element.nbytes for i in range(len(buffer.shape) - 1)]
    return buffer, TensorMapArg(
        name, element.name, buffer.shape[::-1], tuple(strides[::-1]), tuple(int(s) for s in sizes[::-1]),
        int(swizzle[0]) if swizzle else 0,
    )  # fmt: skip


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
        raise UsageError(f"cannot read {path}", str(error)) from error
    ptx = path.suffix == ".ptx"
    known = re.findall(r"\.entry\s+([\w$]+)", text) if ptx else entries_in(text)
    if entry is None and len(known) != 1:
        raise UsageError(
            f"{path.name} has {len(known) or 'no'} kernels" + ("" if ptx else ' declared extern "C"'),
            f"choose one with --entry: {', '.join(known)}" if known else 'write extern "C" __global__ void …',
        )
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
    """By `compiler`; where that is NVRTC and the source wants a host header, by nvcc if there is one."""
    try:
        return compiler.compile(source, entry, arch)
    except Uncompilable as error:
        kit = next((kit for kit in toolkits() if kit.nvcc), None)
        if compiler.tool == "nvcc" or kit is None or "cannot open source file" not in str(error):
            raise
    with Compiler(kit, "nvcc", compiler.cache) as complete:
        return complete.compile(source, entry, arch)


# --- running
# -------------------------------------------------------------------------------------------------


def filled(buffer: Buffer, seed: int) -> npt.NDArray[np.uint8]:
    """A buffer's bytes before the launch, with its own random stream."""
    count = math.prod(buffer.shape)
    dtype = dtype_named(buffer.dtype)
    if buffer.fill == "poison":
        return np.full(buffer.nbytes, 0xA5, np.uint8)
    stream = np.random.default_rng([seed, *buffer.name.encode()])
    values: npt.NDArray[np.float64]
    match buffer.fill:
        case "normal":
            values = stream.standard_normal(count) * (1 if dtype.floating else 50)
        case "uniform":
            values = stream.random(count) * (1 if dtype.floating else 100)
        case "arange":
            values = np.arange(count, dtype=np.float64)
        case "ones" | "zeros":
            values = np.full(count, float(buffer.fill == "ones"))
        case number:
            values = np.full(count, float(number))
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.name == "bf16":
            return (values.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype(np.uint16).view(np.uint8)
        if dtype.name == "fp8":
            return values.astype(np.int64).astype(np.uint8)
        numbers = values if dtype.floating else values.astype(np.int64)
        return numbers.astype(dtype.torch_name).view(np.uint8)


def emulate(
    kernel: EmulatorKernel,
    launch: LaunchConfig,
    buffers: Sequence[Buffer],
    schedules: Sequence[str],
    *,
    source: str = "",
    seed: int = 0,
) -> Emulation:
    """Run `kernel` under every schedule on fresh, equal buffers. A fault ends its schedule, not the
    others."""
    device = kernel.device
    runs = []
    for schedule in schedules:
        storage = {}
        for buffer in buffers:
            # aligned like cudaMalloc's, guarded against what lies beside it on the heap
            raw = np.empty(buffer.nbytes + 2 * GUARD_BYTES, np.uint8)
            start = -raw.ctypes.data % GUARD_BYTES
            storage[buffer.name] = raw[start : start + buffer.nbytes]
            storage[buffer.name][:] = filled(buffer, seed)
        regions = {
            b.name: Region(b.name, storage[b.name].ctypes.data, b.nbytes, b.role != "in", b.fill != "poison")
            for b in buffers
        }
        execution = kernel.execute(launch, regions, schedule, profile=True)
        runs.append(Run(schedule, execution, {name: array.tobytes() for name, array in storage.items()}))
    well = next((run for run in runs if not run.execution.fault), None)
    model = None
    if well and device.gpu.clock_ghz:
        model = estimate(well.execution.counters, kernel.binary.resources, launch, device.gpu)
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
    kernel = device.load(binary, config)
    result = emulate(kernel, config, buffers, schedules or device.schedules, source=source, seed=seed)
    return replace(result, file=path.name) if source else result


def emulate_candidate(
    candidate: Candidate,
    specs: Sequence[BufferSpec],
    device: EmulatorDevice,
    compiler: Compiler,
    schedules: Sequence[str] = (),
    *,
    seed: int = 0,
) -> Emulation:
    """The same for a candidate, whose launch and buffers (`specs`, of its task) are known: inputs are N(0,1).

    Raises Uncompilable, Unlaunchable."""
    binary = compiler.compile(candidate.source, candidate.entry, device.gpu.arch)
    kernel = device.load(binary, candidate.launch)
    buffers = [
        Buffer(s.name, s.role, s.dtype, s.shape, "normal" if s.role == "in" else "poison") for s in specs
    ] + [
        Buffer(w.name, "inout", "u8", (w.nbytes,), "zeros" if w.zeroed else "poison")
        for w in candidate.launch.workspaces
    ]
    source = candidate.source
    result = emulate(
        kernel, candidate.launch, buffers, schedules or device.schedules, source=source, seed=seed
    )
    fitted = is_fitted(candidate.problem.task, candidate.template)
    return replace(result, estimate=result.estimate and replace(result.estimate, fitted=fitted))


# --- telling
# -------------------------------------------------------------------------------------------------


def told(result: Emulation, color: bool = False) -> Iterator[str]:
    """The result for a person, line by line."""

    def paint(code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if color else text

    width = max(len(run.schedule) for run in result.runs)
    for run in result.runs:
        fault = run.execution.fault
        if fault is None:
            instructions = run.execution.counters.get("instructions", 0)
            yield (
                f"{run.schedule:<{width}}  {paint('32', 'no error')}  {run.execution.seconds * 1e3:.1f} ms, "
                f"{instructions:.0f} warp instructions, {run.execution.coverage:.0%} of the code ran"
            )
        else:
            error = run.error
            reason = error.reason if isinstance(error, CandidateError) else str(error)
            yield f"{run.schedule:<{width}}  {paint('1;31', reason)}"
    told_already: set[tuple[int, int, str]] = set()
    for schedule, fault in result.faults.items():
        key = (fault.kind, fault.line or fault.ptx_line, fault.file)
        if key not in told_already:
            told_already.add(key)
            yield ""
            yield from _told_fault(schedule, fault, result, paint)
    for name in result.changing:
        yield ""
        yield paint(
            "1;31", f"buffer {name} differs between schedules: its content depends on the order of events"
        )
    profile = next((run for run in result.runs if not run.execution.fault), None)
    if profile:
        yield ""
        yield from _told_counters(profile.execution)
        yield from _told_conflicts(profile.execution.lines, result.source)
        if result.estimate:
            yield ""
            yield f"{result.gpu}: {result.estimate.explain()}"


def _told_fault(schedule: str, fault: Fault, result: Emulation, paint: Any) -> Iterator[str]:
    def named(text: str) -> str:
        return text.replace(fault.file, result.file) if fault.file and result.file else text

    yield f"{paint('1', fault.text)}  (schedule {schedule})"
    yield f"  at {named(place_of(fault))}"
    if fault.other:
        yield f"  and {named(fault.other)}"
    lines = result.source.splitlines()
    if 0 < fault.line <= len(lines):
        first = max(0, fault.line - 3)
        for number, line in enumerate(lines[first : fault.line + 2], first + 1):
            mark = ">" if number == fault.line else " "
            text = f"  {mark} {number:4} | {line}"
            yield paint("31", text) if number == fault.line else text


def _told_counters(execution: Execution) -> Iterator[str]:
    yield "counted over the grid:"
    shown = [
        (name, value)
        for name, value in execution.counters.items()
        if value and (not name.startswith("inst_") or value >= execution.counters["instructions"] / 100)
    ]
    for i in range(0, len(shown), 3):
        yield "  " + "".join(f"{name:<26}{value:>12.0f}   " for name, value in shown[i : i + 3]).rstrip()


def _told_conflicts(lines: Sequence[Work], source: str, limit: int = 8) -> Iterator[str]:
    """The lines that cost most shared-memory wavefronts beyond the fewest possible."""
    text = source.splitlines()
    worst = sorted(lines, key=lambda w: w.shared_wavefronts_ideal - w.shared_wavefronts)
    worst = [w for w in worst if w.shared_wavefronts > w.shared_wavefronts_ideal][:limit]
    yield ""
    if not worst:
        yield "no shared-memory bank conflicts"
        return
    yield "shared-memory bank conflicts by line (wavefronts, against the fewest possible):"
    for work in worst:
        code = text[work.line - 1].strip()[:70] if 0 < work.line <= len(text) else Path(work.file).name
        factor = work.shared_wavefronts / max(1, work.shared_wavefronts_ideal)
        yield f"  {factor:5.1f}x {work.shared_wavefronts:>10}  line {work.line:>4}  {code}"


def as_json(result: Emulation) -> dict[str, Any]:
    """The result as JSON-able values: a program reads what a person would."""
    runs = []
    for run in result.runs:
        error = run.error
        fault = run.execution.fault
        runs.append(
            {
                "schedule": run.schedule,
                "seconds": run.execution.seconds,
                "coverage": run.execution.coverage,
                "counters": run.execution.counters,
                "reason": error.reason if isinstance(error, CandidateError) else None,
                "detail": fault.text if fault else None,
                "where": place_of(fault) if fault else None,
                "line": fault.line if fault else None,
                "other": fault.other if fault else None,
            }
        )
    lines = next((run.execution.lines for run in result.runs if run.execution.lines), ())
    return {
        "kernel": result.kernel,
        "device": result.gpu,
        "green": result.green,
        "changing_buffers": list(result.changing),
        "runs": runs,
        "lines": [
            {
                "file": work.file,
                "line": work.line,
                "warp_instructions": work.warp_instructions,
                "shared_wavefronts": work.shared_wavefronts,
                "shared_wavefronts_ideal": work.shared_wavefronts_ideal,
                "global_sectors": work.global_sectors,
            }
            for work in lines
        ],
        "estimate_us": result.estimate.us if result.estimate else None,
    }
