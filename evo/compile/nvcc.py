"""CUDA source -> cubin + PTX + what ptxas says of it, cached by content. By NVRTC, or by nvcc.

Measured on a 60-line mma.sync attention kernel (sm_89, one core, CUDA 13.0.88): NVRTC gives cubin, PTX and
ptxas's report from one call in 0.20 s (ptxas: 0.09 s of it); nvcc and ptxas take 0.48 s together. The
headers (cuda_fp16, mma) cost 10 to 30 ms, so precompiled headers would not pay.

What one needs of a kernel is kept, each need in an entry of its own: a search on a GPU takes its cubin, one
on the emulator its PTX, a person both. Lines of the source are named where there is PTX; a cubin alone has
none, which changes no instruction and makes it 40 to 47 % smaller.

The first of these that works compiles:

1. the toolkit that was asked for (`--nvcc`, CUDA_HOME), by its NVRTC if it has one, else by its nvcc;
2. the NVRTC of the toolkit on PATH, then that of NVIDIA's wheels (`nvidia/cu13` in site-packages);
3. the nvcc on PATH, then that of the wheels.

Compilers run in processes that are killed at a deadline, NVRTC at one of CPU time: Uncompilable("compile
timeout").
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, Self

from evo.cache import Cache
from evo.compile import nvrtc
from evo.compile.ninja import ninja_build
from evo.compile.ptxas import first_errors, machine_code, module_state, reason, resources, without_ptx_text
from evo.compile.toolkit import Toolkit, toolkits
from evo.errors import MachineError, Uncompilable
from evo.trial import Binary, Resources, digest_of

OPTIONS = ("-std=c++17",)
"""What every candidate is compiled with, besides its architecture and, where there is PTX, LINES."""
LINES = "-lineinfo"
OLDEST = (12, 4)
"""Releases below are passed over unless they are asked for by name."""
PRUNE_EVERY = 1000
"""Own builds between two looks at the size of the cache."""
Part = Literal["cubin", "ptx"]
PARTS: tuple[Part, ...] = ("cubin", "ptx")
_XZ_PRESET: dict[bool, int] = {True: 1, False: 6}
"""With a cubin and without: 6 takes 5 times as long and makes PTX an eighth smaller, a cubin hardly."""
_OWN_FILE = re.compile(r'"[^"\n]*/candidate\.cu"')
"""The source as PTX names it: by the folder that happened to be the compiler's."""


def find_compiler(
    nvcc: Path | None, cache: Cache, *, timeout_s: float = 60.0, parts: Sequence[Part] = PARTS,
    background: bool = False,
) -> Compiler:  # fmt: skip
    """The best compiler of this machine; `nvcc` (from --nvcc or CUDA_HOME) is taken without looking further.
    Its binaries have these `parts`. In the `background` NVRTC gets only what of the cores others leave,
    unless they leave next to nothing.

    Raises MachineError where there is none, or where the one asked for does not work.
    """
    known = toolkits(nvcc)
    choices: list[tuple[Toolkit, Literal["nvrtc", "nvcc"]]] = []
    choices += [(kit, "nvrtc") for kit in known if kit.nvrtc]
    choices += [(kit, "nvcc") for kit in known if kit.nvcc]
    if nvcc is not None:
        choices = [choice for choice in choices if choice[0] is known[0]]
    problems = []
    for kit, tool in choices:
        try:
            compiler = Compiler(kit, tool, cache, timeout_s=timeout_s, parts=parts, background=background)
        except MachineError as error:
            problems.append(f"{tool} ({kit.origin}): {error.message}")
            continue
        if nvcc is not None or compiler.release >= OLDEST:
            return compiler
        problems.append(f"{compiler.version} ({kit.origin}) is older than {OLDEST[0]}.{OLDEST[1]}")
        compiler.close()
    raise MachineError(
        "no CUDA compiler found" + "".join(f"; {p}" for p in problems),
        "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl (CUDA 13.0), or give --nvcc PATH",
    )


@dataclass(frozen=True)
class _Built:
    """What came out of a compiler: `ptx` and `cubin` are empty unless `ok`."""

    ok: bool
    log: str
    ptx: bytes = b""
    cubin: bytes = b""


class Compiler:
    """Compiles candidates; safe to use from several threads at once. `version` is part of every key. Binaries
    have these `parts`, and nothing else of them is kept."""

    def __init__(
        self, toolkit: Toolkit, tool: Literal["nvrtc", "nvcc"], cache: Cache,
        *, timeout_s: float = 60.0, parts: Sequence[Part] = PARTS, background: bool = False,
    ) -> None:  # fmt: skip
        self.toolkit = toolkit
        self.tool = tool
        self.cache = cache
        self.timeout_s = timeout_s
        self.parts = frozenset(parts)
        self.options = (*OPTIONS, *((LINES,) if "ptx" in self.parts else ()))
        self._backend: _NvrtcProcesses | _NvccCommands
        if tool == "nvrtc":
            self._backend = _NvrtcProcesses(toolkit, self.options, background)
        else:
            self._backend = _NvccCommands(toolkit, self.options)
        self._builds = 0
        self.release, self.version = self._probe()

    def _probe(self) -> tuple[tuple[int, int], str]:
        """Compile next to nothing, with a header: does it work, and what is its full version?"""
        source = '#include <cuda_fp16.h>\nextern "C" __global__ void probe(__half* x) { x[0] = x[1]; }\n'
        try:
            built = self._backend.build(source, "sm_80", self.timeout_s)
        except Uncompilable as error:
            self.close()
            raise MachineError(f"{self.tool} does not work: {error.reason} {error.detail}") from error
        said = re.search(rb"release (\d+)\.(\d+), V([\d.]+)", built.ptx)
        if not built.ok or not said:
            self.close()
            raise MachineError(f"{self.tool} does not work: {first_errors(built.log) or 'it says nothing'}")
        return (int(said[1]), int(said[2])), f"{self.tool} {said[3].decode()}"

    def key(self, source: str, entry: str, arch: str) -> str:
        """The cache key: equal keys are the same binary, with the same parts."""
        return digest_of(source, entry, arch, list(self.options), sorted(self.parts), self.version)

    def compile(self, source: str, entry: str, arch: str) -> Binary:
        """The binary of `source` for `arch` ("sm_89", "sm_90a"), from the cache if it was built before.

        Raises Uncompilable with a short reason; `detail` has the compiler's first errors with their lines.
        """
        key = self.key(source, entry, arch)
        cached = self._load(key)
        if cached is not None:
            return cached
        begin = time.perf_counter()
        built = self._backend.build(source, arch, self.timeout_s)
        return self._keep(key, self._binary(built, entry, arch, time.perf_counter() - begin))

    def compile_many(
        self, requests: Sequence[tuple[str, str, str]], jobs: int
    ) -> list[Binary | Uncompilable]:
        """`compile` for many (source, entry, arch) at once on `jobs` cores; failures are values in their
        places. nvcc runs under ninja, NVRTC in `jobs` processes."""
        keys = [self.key(*request) for request in requests]
        done: dict[str, Binary | Uncompilable] = {}
        missing: dict[str, tuple[str, str, str]] = {}
        for key, request in zip(keys, requests, strict=True):
            cached = self._load(key)
            if cached is not None:
                done[key] = cached
            else:
                missing[key] = request
        sources = [(source, arch) for source, _, arch in missing.values()]
        results = self._backend.build_many(sources, self.timeout_s, jobs)
        for (key, (_, entry, arch)), (result, seconds) in zip(missing.items(), results, strict=True):
            try:
                if isinstance(result, Uncompilable):
                    raise result
                done[key] = self._keep(key, self._binary(result, entry, arch, seconds))
            except Uncompilable as error:
                done[key] = error
        return [done[key] for key in keys]

    def close(self) -> None:
        """End the compiler's processes."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _binary(self, built: _Built, entry: str, arch: str, seconds: float) -> Binary:
        if not built.ok:
            raise Uncompilable(reason(built.log), first_errors(built.log))
        cubin, ptx = without_ptx_text(built.cubin), _OWN_FILE.sub('"candidate.cu"', built.ptx.decode())
        return Binary(
            cubin=cubin if "cubin" in self.parts else b"",
            ptx=ptx if "ptx" in self.parts else "",
            entry=entry,
            arch=arch,
            compiler=self.version,
            resources=resources(built.log, entry),
            machine_code=machine_code(cubin, ptx, entry),
            seconds=seconds,
            state=module_state(ptx),
        )

    def _load(self, key: str) -> Binary | None:
        """The cached binary; a damaged entry is deleted."""
        try:
            packed = self.cache.read(key)
            if packed is None:
                return None
            head, _, rest = lzma.decompress(packed).partition(b"\n")  # which checks its sum
            fields = json.loads(head)
            cut = fields.pop("ptx_bytes")
            fields["resources"]["warnings"] = tuple(fields["resources"]["warnings"])
            fields["resources"] = Resources(**fields["resources"])
            fields["state"] = tuple(fields["state"])
            return Binary(ptx=rest[:cut].decode(), cubin=rest[cut:], **fields)
        except (OSError, lzma.LZMAError, EOFError, ValueError, KeyError, TypeError):
            self.cache.drop(key)
            return None

    def _keep(self, key: str, binary: Binary) -> Binary:
        ptx = binary.ptx.encode()
        fields = {k: v for k, v in asdict(binary).items() if k not in PARTS}
        head = json.dumps({**fields, "ptx_bytes": len(ptx)}).encode()
        packed = lzma.compress(
            head + b"\n" + ptx + binary.cubin,
            check=lzma.CHECK_CRC32,
            preset=_XZ_PRESET["cubin" in self.parts],
        )
        try:
            self.cache.keep(key, packed)
        except OSError as error:
            raise MachineError(
                f"cannot write to the cache {self.cache.root}: {error.strerror}",
                "free disk space, or move the cache",
            ) from error
        self._builds += 1
        if self._builds % PRUNE_EVERY == 0:
            self.cache.prune()
        return binary


# --- NVRTC -------------------------------------------------------------------------------------------------


class _NvrtcProcesses:
    """Processes that compile with NVRTC; as many as there are threads that compile at once."""

    def __init__(self, toolkit: Toolkit, options: Sequence[str], background: bool) -> None:
        self._toolkit = toolkit
        self._background = background
        self._options = [*options, "--ptxas-options=-v", *(f"-I{folder}" for folder in toolkit.includes)]
        self._idle: list[_NvrtcProcess] = []
        self._busy: set[_NvrtcProcess] = set()
        self._lock = threading.Lock()
        self._closed = False

    def build(self, source: str, arch: str, timeout_s: float) -> _Built:
        child = self._take()
        healthy = False
        try:
            begin = time.monotonic()
            built, cpu_s = child.ask(source, [f"-arch={arch}", *self._options], timeout_s)
            if time.monotonic() - begin > CROWDED * max(0.1, cpu_s):
                self._background = False
            healthy = True
        finally:
            self._give_back(child, healthy)
        return built

    def _give_back(self, child: _NvrtcProcess, healthy: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if healthy and not self._closed:
                self._idle.append(child)
                return
        child.close()

    def _take(self) -> _NvrtcProcess:
        with self._lock:
            if self._closed:
                raise Uncompilable("compiler closed")
            child = self._idle.pop() if self._idle else None
            if child is not None and not (child.alive and child.background == self._background):
                child.close()
                child = None
            child = child or _NvrtcProcess(self._toolkit, self._background)
            self._busy.add(child)
            return child

    def build_many(
        self, sources: Sequence[tuple[str, str]], timeout_s: float, jobs: int
    ) -> list[tuple[_Built | Uncompilable, float]]:
        def one(request: tuple[str, str]) -> tuple[_Built | Uncompilable, float]:
            begin = time.perf_counter()
            try:
                return self.build(*request, timeout_s), time.perf_counter() - begin
            except Uncompilable as error:
                return error, time.perf_counter() - begin

        with ThreadPoolExecutor(max(1, jobs)) as threads:
            return list(threads.map(one, sources))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.kill()  # the thread that waits for it gets an error
        for child in idle:
            child.close()


PATIENCE = 20
"""A compilation that waits for a core may take so many times the CPU time that it is given."""
CROWDED = 10
"""One in the background that took so many times its CPU time is the last: other programs leave no cores."""


class _NvrtcProcess:
    """One process that runs `evo/nvrtc.py`."""

    def __init__(self, toolkit: Toolkit, background: bool) -> None:
        assert toolkit.nvrtc is not None
        self.background = background
        self._connection: Connection
        self._connection, theirs = Pipe()
        program = [sys.executable, "-I", "-S", str(Path(nvrtc.__file__)), str(toolkit.nvrtc)]
        try:
            self._process = subprocess.Popen(
                [*program, str(toolkit.builtins or ""), str(theirs.fileno()), *["background"] * background],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, source: str, options: list[str], timeout_s: float) -> tuple[_Built, float]:
        """Compile; also the seconds of CPU time that it took. Uncompilable if these are more than
        `timeout_s`, or the compiler dies of the source."""
        try:
            self._connection.send((source, options, timeout_s))
            if not self._connection.poll(PATIENCE * timeout_s):
                raise Uncompilable("compile timeout", f"no answer within {PATIENCE * timeout_s:g} s")
            built, cpu_s = self._connection.recv()
            return _Built(*built), cpu_s
        except (EOFError, OSError) as error:
            status = self._process.wait(timeout=10)
            if status == -signal.SIGPROF:
                raise Uncompilable(
                    "compile timeout", f"not done after {timeout_s:g} s of CPU time"
                ) from error
            raise Uncompilable(
                "compiler crashed", f"the compiler's process ended with status {status}"
            ) from error

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


# --- nvcc --------------------------------------------------------------------------------------------------


class _NvccCommands:
    """nvcc (to PTX) and ptxas (to a cubin) as commands; batches through ninja."""

    def __init__(self, toolkit: Toolkit, options: Sequence[str]) -> None:
        assert toolkit.nvcc is not None
        self._options = options
        self._nvcc = str(toolkit.nvcc)
        self._ptxas = str(toolkit.ptxas or toolkit.nvcc.with_name("ptxas"))
        self._running: set[subprocess.Popen[str]] = set()

    def _commands(self, arch: str) -> tuple[list[str], list[str]]:
        """To be run where `candidate.cu` lies."""
        to_ptx = [self._nvcc, "-ptx", f"-arch={arch}", *self._options, "candidate.cu", "-o", "candidate.ptx"]
        lines = [LINES] if LINES in self._options else []
        to_cubin = [self._ptxas, "-v", *lines, f"-arch={arch}", "candidate.ptx", "-o", "candidate.cubin"]
        return to_ptx, to_cubin

    def build(self, source: str, arch: str, timeout_s: float) -> _Built:
        with tempfile.TemporaryDirectory(prefix="evo-nvcc-") as name:
            folder = Path(name)
            (folder / "candidate.cu").write_text(source)
            deadline = time.monotonic() + timeout_s
            log = ""
            for command in self._commands(arch):
                status, said = self._run(command, folder, deadline, timeout_s)
                log += said
                if status:
                    return _Built(False, log)
            return self._collect(folder, log)

    def _collect(self, folder: Path, log: str) -> _Built:
        ptx, cubin = folder / "candidate.ptx", folder / "candidate.cubin"
        return _Built(True, log, ptx.read_bytes(), cubin.read_bytes())

    def build_many(
        self, sources: Sequence[tuple[str, str]], timeout_s: float, jobs: int
    ) -> list[tuple[_Built | Uncompilable, float]]:
        if not sources:
            return []
        with tempfile.TemporaryDirectory(prefix="evo-nvcc-") as name:
            root = Path(name)
            commands = []
            for i, (source, arch) in enumerate(sources):
                (root / str(i)).mkdir()
                (root / str(i) / "candidate.cu").write_text(source)
                steps = " && ".join(shlex.join(step) for step in self._commands(arch))
                limited = shlex.join(["timeout", "-k", "1", f"{timeout_s:g}", "sh", "-c", steps])
                begin = f'cd {i} && export TMPDIR="$PWD" && : > begun'
                commands.append(f"{begin} && {{ {limited}; echo $? > status; }} > log 2>&1; : > ended")
            rules = [("step", "$command")]
            edges = [
                (f"{i}/ended", "step", [f"{i}/candidate.cu"], {"command": c}) for i, c in enumerate(commands)
            ]
            ninja_build(root, rules, edges, jobs)
            return [self._outcome(root / str(i), timeout_s) for i in range(len(sources))]

    def _outcome(self, folder: Path, timeout_s: float) -> tuple[_Built | Uncompilable, float]:
        log = (folder / "log").read_text(errors="replace")
        status = int((folder / "status").read_text())
        seconds = (folder / "ended").stat().st_mtime - (folder / "begun").stat().st_mtime
        if status in (124, 137):
            return Uncompilable("compile timeout", f"no answer within {timeout_s:g} s"), seconds
        return (_Built(False, log) if status else self._collect(folder, log)), seconds

    def _run(self, command: list[str], folder: Path, deadline: float, timeout_s: float) -> tuple[int, str]:
        """Run to the end or to the deadline; then its whole process group is killed (nvcc has children), and
        what it leaves lies in `folder`."""
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True, env={**os.environ, "TMPDIR": str(folder)},
        ) as child:  # fmt: skip
            self._running.add(child)
            try:
                said, _ = child.communicate(timeout=max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise Uncompilable("compile timeout", f"no answer within {timeout_s:g} s") from error
            finally:
                self._running.discard(child)
                _kill_group(child)
            return child.returncode, said

    def close(self) -> None:
        """Ends what other threads wait for."""
        for child in list(self._running):
            _kill_group(child)


def _kill_group(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


# --- reading machine code -----------------------------------------------------------------------------------


def disassemble(binary: Binary, toolkit: Toolkit) -> str:
    """The machine code (SASS) of `binary` as text. MachineError without nvdisasm and cuobjdump."""
    beside = str(toolkit.root / "bin")
    for name, option in (("nvdisasm", "-c"), ("cuobjdump", "-sass")):
        if tool := shutil.which(name) or shutil.which(name, path=beside):
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(binary.cubin)
                file.flush()
                done = subprocess.run([tool, option, file.name], capture_output=True, text=True, check=False)
            if done.returncode:
                raise MachineError(f"{tool} failed: {done.stderr.strip()}")
            return done.stdout
    raise MachineError("no nvdisasm and no cuobjdump found", "pip install nvidia-cuda-nvdisasm")
