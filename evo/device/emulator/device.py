"""The `emulator` device: executes the compiled PTX on the CPU, checks every access, and counts the work.

Needs no GPU, only a host compiler the first time: the interpreter (ptx/*.cpp) is built once into the cache.
What the checks find and what the schedules mean is told in docs/emulator.md.
"""

from __future__ import annotations

import ctypes
import platform
import re
import struct
from collections.abc import Mapping
from functools import cache as once
from pathlib import Path

from evo.cache import Cache, default_folder
from evo.device import LaunchReport, Region
from evo.device.arguments import scalar_bytes
from evo.device.constants import ConstantMemory
from evo.device.emulator import abi
from evo.device.emulator import interpreter as ptx
from evo.device.emulator.estimate import estimate_us
from evo.device.synchronous import SynchronousDevice, SynchronousKernel
from evo.dtype import dtype_named
from evo.errors import CandidateError, Hung, Red, Unlaunchable
from evo.gpu import RESERVED_SMEM_PER_CTA, Gpu, arch_number
from evo.trial import Argument, Binary, BufferArg, LaunchConfig, Resources, ScalarArg, TensorMapArg

SCHEDULES: dict[str, ptx.LaunchOrder] = {
    "eager": ptx.LaunchOrder(late_copies=False, late_wgmma=False, order=0),
    "late_copies": ptx.LaunchOrder(late_copies=True, late_wgmma=False, order=0),
    "late_wgmma": ptx.LaunchOrder(late_copies=False, late_wgmma=True, order=0),
    "reversed": ptx.LaunchOrder(late_copies=True, late_wgmma=True, order=1),
    "seeded:1": ptx.LaunchOrder(late_copies=True, late_wgmma=False, order=2, seed=1),
    "seeded:2": ptx.LaunchOrder(late_copies=False, late_wgmma=True, order=2, seed=2),
}
"""Legal orders of events, the first the default. `seeded:N` takes any N."""

REASONS: dict[int, str] = {
    abi.OUT_OF_BOUNDS: "out of bounds",
    abi.MISALIGNED: "misaligned access",
    abi.UNINITIALISED: "uninitialised read",
    abi.RACE: "race",
    abi.PROXY: "missing fence",
    abi.SYNC: "barrier misuse",
    abi.DEADLOCK: "deadlock",
    abi.TRAP: "trap",
    abi.BAD_OPERAND: "bad operand",
}
"""The countable reason of a Red, by the interpreter's error kind."""

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
PORTABLE_CLUSTER = 8
INSTRUCTIONS_PER_WARP = 4_000_000
"""A launch that runs more than this, times its warps, is a runaway, unless it is known what it needs."""
FEWEST_INSTRUCTIONS = 100_000_000
"""No launch that runs fewer is a runaway (they take 2 to 4 s of a core): one warp may do the work of many."""
RUNAWAY = 3
"""A launch that runs so many times what it should need is one: less is what other sizes may cost."""


def schedule_order(name: str) -> ptx.LaunchOrder:
    """The order of events that a schedule's name stands for; Unlaunchable if there is none of that name."""
    if name == "default":
        return SCHEDULES["eager"]
    if name in SCHEDULES:
        return SCHEDULES[name]
    match = re.fullmatch(r"seeded:(\d{1,18})", name)
    if not match:
        raise Unlaunchable("unknown schedule", f"{name}; known: {', '.join(SCHEDULES)}, seeded:N")
    seed = int(match[1])
    return ptx.LaunchOrder(late_copies=bool(seed & 1), late_wgmma=not seed & 1, order=2, seed=seed)


@once
def load_interpreter(cache: Path | None = None, instructions: str | None = None) -> ptx.Interpreter:
    """The interpreter, built on first use; see `built_interpreter`."""
    return ptx.Interpreter(built_interpreter(cache, instructions))


def built_interpreter(
    cache: Path | None = None,
    instructions: str | None = None,
    extra_flags: tuple[str, ...] = (),
    jobs: int | None = None,
) -> Path:
    """The interpreter's library, built if the cache has none. `cache` is the cache's root (default:
    `~/.cache/evo`); `instructions` the CPU's instruction set ("x86-64-v4", "x86-64-v3", "x86-64"; default:
    what this CPU has); `extra_flags` go to the compiler last; `jobs`: how many files at a time (default: one
    for each core).

    Raises MachineError if it must be built and there is no host compiler.
    """
    from evo.compile import build_shared_library

    folder = Path(__file__).with_name("ptx")
    sources, headers = sorted(folder.glob("*.cpp")), sorted(folder.glob("*.h*"))
    flags = ["-std=c++20", "-O3", "-fvisibility=hidden", "-pthread", "-DNDEBUG"]
    # a*b+c must stay two roundings where the PTX says so; memory is read as several types
    flags += ["-ffp-contract=off", "-fno-strict-aliasing"]
    chosen = cpu_instructions() if instructions is None else instructions
    flags += [f"-march={chosen}"] if chosen else []
    return build_shared_library(
        "evo_ptx",
        sources,
        [*flags, *extra_flags],
        Cache(cache or default_folder()),
        headers=headers,
        shared=folder / "machine.hpp",
        jobs=jobs,
    )


def cpu_instructions() -> str:
    """The widest x86-64 level that this CPU offers, as `-march` takes it; "" on other architectures."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ""
    try:
        told = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        told = None
    flags = set(told[1].split()) if told else set()
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx2", "fma", "f16c"} <= flags:
        return "x86-64-v4"
    return "x86-64-v3" if {"avx2", "fma", "f16c", "bmi2"} <= flags else "x86-64"


class EmulatorDevice(SynchronousDevice):
    """Stands for `gpu`: its limits are refused as its driver would. `jobs` threads run a launch's CTAs; one
    makes every report deterministic. `checks` are abi.CHECK_* bits; `instruction_budget` is how many
    warp instructions a launch may run before it is a runaway."""

    checks_accesses = True

    def __init__(
        self,
        gpu: Gpu,
        jobs: int = 1,
        *,
        checks: int = abi.CHECK_ALL,
        instruction_budget: int | None = None,
        cache: Path | None = None,
        interpreter: ptx.Interpreter | None = None,
    ) -> None:
        self.gpu = gpu
        self.jobs = jobs
        self.checks = checks
        self.instruction_budget = instruction_budget
        self.interpreter = interpreter or load_interpreter(cache)
        self._expected = 0.0

    @property
    def name(self) -> str:
        return f"emulator ({self.gpu.name})"

    @property
    def schedules(self) -> tuple[str, ...]:
        return tuple(SCHEDULES)

    def expect(self, instructions: float) -> None:
        self._expected = instructions

    def budget(self, launch: LaunchConfig) -> int:
        """Warp instructions that a launch may run before it is a runaway."""
        if self.instruction_budget:
            return self.instruction_budget
        warps = -(-launch.threads // 32) * launch.ctas
        enough = RUNAWAY * self._expected if self._expected else warps * INSTRUCTIONS_PER_WARP
        return max(FEWEST_INSTRUCTIONS, int(enough))

    def load(self, binary: Binary, launch: LaunchConfig) -> EmulatorKernel:
        """Raises Unlaunchable if the PTX is not understood or the GPU would refuse `launch`."""
        refuse_impossible(self.gpu, binary, launch)
        return EmulatorKernel(self, binary)

    def estimate_us(
        self, report: LaunchReport, resources: Resources, launch: LaunchConfig, nbytes: int
    ) -> float:
        return estimate_us(report.counters, resources, launch, self.gpu, nbytes)


def refuse_impossible(gpu: Gpu, binary: Binary, launch: LaunchConfig) -> None:
    """Raise Unlaunchable, as the driver would, for what no `gpu` can run."""
    if not runs_on(binary.arch, gpu.arch):
        raise Unlaunchable("wrong architecture", f"code for {binary.arch} on {gpu.arch}")
    resources = binary.resources
    smem = launch.smem_bytes + resources.static_smem_bytes
    if smem > gpu.smem_per_cta:
        raise Unlaunchable("shared memory", f"{smem} bytes a CTA, {gpu.name} has {gpu.smem_per_cta}")
    for what, size, limit in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK)):
        if any(not 1 <= n <= most for n, most in zip(size, limit, strict=True)):
            raise Unlaunchable(f"{what} size", f"{size}, allowed up to {limit}")
    if launch.threads > gpu.threads_per_cta:
        raise Unlaunchable("block size", f"{launch.threads} threads a CTA, at most {gpu.threads_per_cta}")
    if not gpu.ctas_resident(launch.threads, resources.registers, max(0, smem)):
        raise Unlaunchable(
            "resources",
            f"{launch.threads} threads of {resources.registers} registers and {smem + RESERVED_SMEM_PER_CTA} "
            f"bytes of shared memory do not fit an SM of {gpu.name}",
        )
    ctas = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    if ctas > min(gpu.max_cluster, PORTABLE_CLUSTER):
        raise Unlaunchable("cluster size", f"{ctas} CTAs, {gpu.name} has at most {gpu.max_cluster}")
    resident = ctas_at_once(gpu, binary, launch)
    if launch.cooperative and launch.ctas > resident:
        raise Unlaunchable("cooperative launch", f"{launch.ctas} CTAs, {gpu.name} holds {resident} at once")
    if any(n % k for n, k in zip(launch.grid, launch.cluster, strict=True)):
        raise Unlaunchable("cluster size", f"grid {launch.grid} is no multiple of cluster {launch.cluster}")


def ctas_at_once(gpu: Gpu, binary: Binary, launch: LaunchConfig) -> int:
    """How many CTAs of the launch all SMs of `gpu` hold together."""
    smem = launch.smem_bytes + binary.resources.static_smem_bytes
    return gpu.sms * gpu.ctas_resident(launch.threads, binary.resources.registers, max(0, smem))


def runs_on(code: str, machine: str) -> bool:
    """Whether a cubin for `code` loads on `machine`: same major, minor at most; an "a" set is exact."""
    (major, minor), (has_major, has_minor) = arch_number(code), arch_number(machine)
    if code.endswith("a"):
        return (major, minor) == (has_major, has_minor)
    return major == has_major and minor <= has_minor


def registers_at_entry(resources: Resources) -> int:
    """Registers a thread that `setmaxnreg` starts from; 0 where ptxas did not know them and ignored it."""
    return 0 if any("'setmaxnreg' ignored" in said for said in resources.warnings) else resources.registers


class EmulatorKernel(SynchronousKernel):
    """A parsed entry point."""

    def __init__(self, device: EmulatorDevice, binary: Binary) -> None:
        self.device = device
        self._binary = binary
        try:
            self.module = device.interpreter.parse(binary.ptx)
        except ptx.PtxError as error:
            raise Unlaunchable("unreadable PTX", str(error), f"PTX line {error.line}") from error
        if binary.entry not in self.module.entries:
            raise Unlaunchable(
                "no such entry", f"{binary.entry}; the module has {', '.join(self.module.entries)}"
            )
        self.entry = self.module.entries[binary.entry]
        if self.entry.unsupported:
            raise Unlaunchable("unsupported instruction", self.entry.unsupported)
        self._constants = ConstantMemory(self.module.variable)

    @property
    def binary(self) -> Binary:
        return self._binary

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        """Run once. Raises Unlaunchable, Red (with the reason, and the source line in `where`) or Hung."""
        return _report(self.execute(launch, regions, schedule), schedule)

    def launch_end(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> LaunchReport:
        """The last cluster of the grid alone, under the default schedule; raises what `launch` does."""
        return _report(self.execute(launch, regions, last_clusters=1), "default")

    def execute(
        self,
        launch: LaunchConfig,
        regions: Mapping[str, Region],
        schedule: str = "default",
        profile: bool = False,
        last_clusters: int = 0,
    ) -> ptx.Execution:
        """Run once and return what happened, a fault included; with `profile` the work by line as well."""
        device = self.device
        self.write_constants(launch, regions)
        return self.module.run(
            self.entry,
            launch,
            self._parameters(launch, regions),
            [ptx.Memory(r.name, r.address, r.nbytes, r.writable, r.initialised) for r in regions.values()],
            schedule_order(schedule),
            checks=device.checks,
            threads=device.jobs,
            sm_count=device.gpu.sms,
            registers=registers_at_entry(self._binary.resources),
            instruction_budget=device.budget(launch),
            profile=profile,
            last_clusters=last_clusters,
            resident=ctas_at_once(device.gpu, self._binary, launch),
        )

    def write_constants(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> None:
        for place, source in self._constants.places(launch, regions):
            ctypes.memmove(place.address, source.address, source.nbytes)
            ctypes.memset(place.address + source.nbytes, 0, place.nbytes - source.nbytes)

    def _parameters(self, launch: LaunchConfig, regions: Mapping[str, Region]) -> bytes:
        params = self.entry.params
        if len(params) != len(launch.args):
            what = f"{self.entry.name} takes {len(params)} arguments, and is given {len(launch.args)}"
            raise Unlaunchable("arguments", what)
        block = bytearray(self.entry.param_nbytes)
        for number, (param, arg) in enumerate(zip(params, launch.args, strict=True), 1):
            raw = self._argument(arg, regions)
            if len(raw) != param.nbytes:
                given = f"{arg.type} {arg.value}" if isinstance(arg, ScalarArg) else arg.buffer
                what = f"argument {number} of {self.entry.name} has {param.nbytes} bytes"
                raise Unlaunchable("arguments", f"{what}, and is given {given}, which has {len(raw)}")
            block[param.offset : param.offset + param.nbytes] = raw
        return bytes(block)

    def _argument(self, arg: Argument, regions: Mapping[str, Region]) -> bytes:
        if isinstance(arg, ScalarArg):
            return scalar_bytes(arg)
        region = regions[arg.buffer]
        if isinstance(arg, BufferArg):
            return struct.pack("<Q", region.address)
        try:
            return self.device.interpreter.encode_tensor_map(_tensor_map(arg, region))
        except ValueError as error:
            raise Unlaunchable("tensor map", f"{arg.buffer}: {error}") from error


def _report(execution: ptx.Execution, schedule: str) -> LaunchReport:
    if execution.fault:
        raise verdict(execution.fault)
    name = "eager" if schedule == "default" else schedule
    return LaunchReport(name, execution.seconds, execution.counters, execution.coverage)


def _tensor_map(arg: TensorMapArg, region: Region) -> abi.TensorMap:
    element = dtype_named(arg.dtype)
    raw = abi.TensorMap(
        address=region.address,
        element_nbytes=element.nbytes,
        is_float="FLOAT" in element.tensor_map,
        is_bf16=element.name == "bf16",
        rank=len(arg.shape),
        swizzle=arg.swizzle,
    )
    for name in ("shape", "strides", "box"):
        for i, value in enumerate(getattr(arg, name)):
            getattr(raw, name)[i] = value
    return raw


def verdict(fault: ptx.Fault) -> CandidateError | KeyboardInterrupt | RuntimeError:
    """The exception that a fault means; its `where` is `place_of(fault)`."""
    if fault.kind == abi.ABORTED:
        return KeyboardInterrupt()
    if fault.kind == abi.INTERNAL:
        return RuntimeError(f"the PTX interpreter failed: {fault.message}")
    where = place_of(fault)
    if fault.kind == abi.REFUSED:
        return Unlaunchable("refused", fault.text, where)
    if fault.kind == abi.UNSUPPORTED:
        return Unlaunchable("unsupported instruction", fault.text, where)
    if fault.kind == abi.RUNAWAY:
        return Hung("runaway loop", fault.text, where)
    detail = f"{fault.text}; the other access: {fault.other}" if fault.other else fault.text
    return Red(REASONS[fault.kind], detail, where)


def place_of(fault: ptx.Fault) -> str:
    """Where a fault happened, in words: `k.cu:31 (PTX line 200: ld.shared.u32 …), thread (3,0,0), CTA
    (0,0,0),
    global q +4096 bytes`."""
    parts = []
    at = f"{fault.file}:{fault.line}" if fault.file else ""
    if fault.ptx_line:
        at += (
            f" (PTX line {fault.ptx_line}: {fault.ptx_text})"
            if at
            else f"PTX line {fault.ptx_line}: {fault.ptx_text}"
        )
    if at:
        parts.append(at)
    if fault.thread[0] >= 0:
        x, y, z = fault.thread
        parts.append(f"thread ({x},{y},{z})")
    if fault.cta[0] >= 0:
        x, y, z = fault.cta
        parts.append(f"CTA ({x},{y},{z})")
    if fault.buffer:
        name = fault.buffer if fault.space in fault.buffer else f"{fault.space} {fault.buffer}"
        parts.append(f"{name} {fault.offset:+d} bytes")
    elif fault.space:
        parts.append(f"{fault.space} memory, offset {fault.offset}")
    return ", ".join(parts)
