"""The PTX interpreter, a library in C++ (ptx/): its modules, and how their launches went."""

from __future__ import annotations

import ctypes as c
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from evo.device.emulator import abi
from evo.trial import LaunchConfig


@dataclass(frozen=True)
class Row:
    """One row of the instruction table: `?x` in a pattern is optional, `a|b` is one of."""

    pattern: str
    family: str
    instruction_class: str
    note: str


@dataclass(frozen=True)
class Param:
    """One kernel parameter: `nbytes` at `offset` of the parameter block."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Entry:
    """One entry point of a module. `unsupported` is "" or names its first instruction outside the table."""

    index: int
    name: str
    params: tuple[Param, ...]
    param_nbytes: int
    static_smem: int
    dynamic_smem_align: int
    max_threads: int
    required_cluster: tuple[int, int, int]
    instruction_count: int
    unsupported: str


@dataclass(frozen=True)
class Work:
    """What one CUDA line, or one PTX instruction (`ptx_line` > 0), did in a launch, summed over the grid."""

    file: str
    line: int
    ptx_line: int
    text: str
    instruction_class: str
    static_count: int
    executed_count: int
    warp_instructions: int
    thread_instructions: int
    shared_wavefronts: int
    shared_wavefronts_ideal: int
    global_sectors: int
    global_nbytes: int


@dataclass(frozen=True)
class Fault:
    """The first error of a launch; see evo_ptx_error in the header for the fields."""

    kind: int
    text: str
    message: str
    file: str
    line: int
    ptx_line: int
    ptx_text: str
    cta: tuple[int, int, int]
    thread: tuple[int, int, int]
    warp: int
    space: str
    buffer: str
    offset: int
    other: str


@dataclass(frozen=True)
class Execution:
    """How a launch went. `fault` is None when all went well; the work lists are empty unless asked for."""

    seconds: float
    counters: dict[str, float]
    coverage: float
    fault: Fault | None
    lines: tuple[Work, ...] = ()
    instructions: tuple[Work, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Host memory that a launch may touch."""

    name: str
    address: int
    nbytes: int
    writable: bool
    initialised: bool


@dataclass(frozen=True)
class LaunchOrder:
    """What a schedule is made of: when asynchronous work completes and which CTA and warp run first
    (`order`: 0 forward, 1 reversed, 2 seeded)."""

    late_copies: bool
    late_wgmma: bool
    order: int
    seed: int = 0


class PtxError(Exception):
    """The module cannot be parsed; `line` in the PTX, 0 if unknown."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Interpreter:
    """The loaded shared library."""

    def __init__(self, library: Path) -> None:
        lib = c.CDLL(str(library))
        for name, result, *arguments in (
            ("abi_version", c.c_uint32),
            ("build", c.c_char_p),
            ("parse", c.c_void_p, c.c_char_p, c.c_size_t, c.c_char_p, c.c_size_t, c.POINTER(c.c_uint32)),
            ("module_free", None, c.c_void_p),
            ("target", c.c_char_p, c.c_void_p),
            ("entry_count", c.c_uint32, c.c_void_p),
            ("entry_get", c.c_int, c.c_void_p, c.c_uint32, c.POINTER(abi.CEntry)),
            ("param_get", c.c_int, c.c_void_p, c.c_uint32, c.c_uint32, c.POINTER(abi.CParam)),
            ("variable", c.c_void_p, c.c_void_p, c.c_char_p, c.POINTER(c.c_uint64)),
            ("tensor_map_encode", c.c_int, c.POINTER(abi.TensorMap), c.c_char_p, c.c_char_p, c.c_size_t),
            ("kind_name", c.c_char_p, c.c_int32),
            ("run", c.c_void_p, c.c_void_p, c.POINTER(abi.CLaunch)),
            ("report_free", None, c.c_void_p),
            ("report_error", c.POINTER(abi.CError), c.c_void_p),
            ("report_seconds", c.c_double, c.c_void_p),
            ("report_coverage", c.c_double, c.c_void_p),
            ("report_counters", c.POINTER(abi.CCounter), c.c_void_p, c.POINTER(c.c_uint32)),
            ("report_instructions", c.POINTER(abi.CWork), c.c_void_p, c.POINTER(c.c_uint32)),
            ("report_lines", c.POINTER(abi.CWork), c.c_void_p, c.POINTER(c.c_uint32)),
            ("table", c.POINTER(abi.CRow), c.POINTER(c.c_uint32)),
        ):
            function = getattr(lib, f"evo_ptx_{name}")
            function.restype, function.argtypes = result, list(arguments)
            setattr(self, f"c_{name}", function)
        self.lib = lib
        built = self._call("abi_version")
        if built != abi.ABI_VERSION:
            raise RuntimeError(f"the interpreter has ABI {built}, this Python expects {abi.ABI_VERSION}")

    def _call(self, name: str, *arguments: object) -> Any:
        return getattr(self, f"c_{name}")(*arguments)

    @property
    def build(self) -> str:
        """The fastest tensor-core path compiled in: "avx512", "avx2" or "portable"."""
        return _text(self._call("build"))

    def kind_name(self, kind: int) -> str:
        """How an error kind is called: "out of bounds"."""
        return _text(self._call("kind_name", kind))

    @cached_property
    def table(self) -> tuple[Row, ...]:
        """Every instruction that is supported."""
        count = c.c_uint32()
        rows = self._call("table", c.byref(count))
        return tuple(Row(*_fields(rows[i])) for i in range(count.value))

    def parse(self, ptx: str) -> Module:
        """Raises PtxError."""
        return Module(self, ptx)

    def encode_tensor_map(self, tensor_map: abi.TensorMap) -> bytes:
        """The interpreter's form of a CUtensorMap; ValueError with the rule that the map breaks."""
        out = c.create_string_buffer(abi.TENSOR_MAP_NBYTES)
        error = c.create_string_buffer(512)
        if self._call("tensor_map_encode", c.byref(tensor_map), out, error, len(error)) != 0:
            raise ValueError(_text(error.value))
        return out.raw


class Module:
    """A loaded PTX module; several threads may run it at once. Its variables live as long as it does."""

    def __init__(self, interpreter: Interpreter, ptx: str) -> None:
        self.interpreter = interpreter
        text = ptx.encode()
        error = c.create_string_buffer(1024)
        line = c.c_uint32()
        self._handle = interpreter._call("parse", text, len(text), error, len(error), c.byref(line))
        if not self._handle:
            raise PtxError(_text(error.value), line.value)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.interpreter._call("module_free", self._handle)
            self._handle = None

    @property
    def target(self) -> str:
        """The module's `.target`: "sm_90a"."""
        return _text(self.interpreter._call("target", self._handle))

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Entry points by name."""
        call = self.interpreter._call
        found = {}
        for index in range(int(call("entry_count", self._handle))):
            raw = abi.CEntry()
            call("entry_get", self._handle, index, c.byref(raw))
            params = []
            for i in range(raw.param_count):
                param = abi.CParam()
                call("param_get", self._handle, index, i, c.byref(param))
                params.append(Param(_text(param.name), param.offset, param.nbytes))
            cluster = (raw.required_cluster[0], raw.required_cluster[1], raw.required_cluster[2])
            entry = Entry(
                index,
                _text(raw.name),
                tuple(params),
                raw.param_nbytes,
                raw.static_smem,
                raw.dynamic_smem_align,
                raw.max_threads,
                cluster,
                raw.instruction_count,
                _text(raw.unsupported),
            )
            found[entry.name] = entry
        return found

    def variable(self, name: str) -> tuple[int, int] | None:
        """Where a variable of the module lies on the host, and its bytes, which may be written between
        launches; None where there is none of that name."""
        nbytes = c.c_uint64()
        address = self.interpreter._call("variable", self._handle, name.encode(), c.byref(nbytes))
        return (int(address), nbytes.value) if address else None

    def run(
        self,
        entry: Entry,
        launch: LaunchConfig,
        params: bytes,
        memory: Sequence[Memory],
        order: LaunchOrder,
        *,
        checks: int = abi.CHECK_ALL,
        threads: int = 1,
        sm_count: int = 132,
        registers: int = 0,
        instruction_budget: int = 0,
        profile: bool = False,
        last_clusters: int = 0,
        resident: int = 0,
    ) -> Execution:
        """Run one launch to its end; `params` is the parameter block, `registers` how many a thread is
        launched with (0: not known). `last_clusters`: of the grid only so many run, the last ones; 0: all.
        `resident`: how many CTAs the GPU holds at once; 0: not known.
        Ctrl-C in the main thread ends it soon and raises KeyboardInterrupt."""
        regions = (abi.CRegion * max(1, len(memory)))(
            *[abi.CRegion(m.name.encode(), m.address, m.nbytes, m.writable, m.initialised) for m in memory]
        )
        abort = c.c_int32(0)
        request = abi.CLaunch(
            c.sizeof(abi.CLaunch),
            entry.index,
            launch.grid,
            launch.block,
            launch.cluster,
            launch.smem_bytes,
            registers,
            params,
            len(params),
            regions,
            len(memory),
            order.late_copies,
            order.late_wgmma,
            order.order,
            checks,
            order.seed,
            threads,
            sm_count,
            launch.cooperative,
            last_clusters,
            resident,
            instruction_budget,
            c.pointer(abort),
        )
        report = self._run_interruptibly(request, abort)
        if not report:
            raise MemoryError("the PTX interpreter ran out of memory")
        try:
            return self._read(report, profile)
        finally:
            self.interpreter._call("report_free", report)

    def _run_interruptibly(self, launch: abi.CLaunch, abort: c.c_int32) -> Any:
        """A signal handler only runs between Python instructions of the main thread, so there the launch runs
        in a thread of its own while the main thread waits where it can be interrupted."""
        call = self.interpreter._call
        deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a worker: its parent ends it
        if deaf or threading.current_thread() is not threading.main_thread():
            return call("run", self._handle, c.byref(launch))
        answer: list[Any] = []
        worker = threading.Thread(target=lambda: answer.append(call("run", self._handle, c.byref(launch))))
        worker.start()
        try:
            worker.join()
        except BaseException:
            abort.value = 1
            worker.join()
            if answer and answer[0]:
                call("report_free", answer[0])
            raise
        return answer[0]

    def _read(self, report: Any, profile: bool) -> Execution:
        call = self.interpreter._call
        count = c.c_uint32()
        raw = call("report_counters", report, c.byref(count))
        counters = {_name(one.name): one.value for one in raw[: count.value]}
        instructions: tuple[Work, ...] = ()
        lines: tuple[Work, ...] = ()
        if profile:
            raw = call("report_instructions", report, c.byref(count))
            instructions = tuple(Work(*_fields(raw[i])) for i in range(count.value))
            raw = call("report_lines", report, c.byref(count))
            lines = tuple(Work(*_fields(raw[i])) for i in range(count.value))
        error = call("report_error", report).contents
        fault = None if error.kind == abi.OK else _fault(error)
        seconds = float(call("report_seconds", report))
        coverage = float(call("report_coverage", report))
        return Execution(seconds, counters, coverage, fault, lines, instructions)


def _text(raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else ""


@cache
def _name(raw: bytes) -> str:
    """A counter's name; they are the same in all reports."""
    return _text(raw)


def _fields(raw: c.Structure) -> list[Any]:
    values = [getattr(raw, str(field[0])) for field in raw._fields_]
    return [_text(v) if isinstance(v, bytes) or v is None else v for v in values]


def _fault(raw: abi.CError) -> Fault:
    named = dict(zip((str(field[0]) for field in raw._fields_), _fields(raw), strict=True))
    named["cta"], named["thread"] = tuple(raw.cta), tuple(raw.thread)
    return Fault(**{name: named[name] for name in Fault.__dataclass_fields__})
