"""nvcc (to PTX) and ptxas (to a cubin) as commands; batches through ninja."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from evo.child import Command
from evo.compile.built import LINES, Built, Wanted
from evo.compile.ninja import ninja_build
from evo.compile.packing import packed
from evo.compile.toolkit import Toolkit
from evo.errors import Uncompilable


class NvccCommands:
    """Compiles with the nvcc of a toolkit."""

    def __init__(self, toolkit: Toolkit, options: Sequence[str]) -> None:
        assert toolkit.nvcc is not None
        self._options = options
        self._nvcc = str(toolkit.nvcc)
        self._ptxas = str(toolkit.ptxas or toolkit.nvcc.with_name("ptxas"))
        self._running: set[Command] = set()

    def _commands(self, arch: str) -> tuple[list[str], list[str]]:
        """To be run where `candidate.cu` lies."""
        to_ptx = [self._nvcc, "-ptx", f"-arch={arch}", *self._options, "candidate.cu", "-o", "candidate.ptx"]
        lines = [LINES] if LINES in self._options else []
        to_cubin = [self._ptxas, "-v", *lines, f"-arch={arch}", "candidate.ptx", "-o", "candidate.cubin"]
        return to_ptx, to_cubin

    def build(self, source: str, arch: str, timeout_s: float) -> Built:
        with tempfile.TemporaryDirectory(prefix="evo-nvcc-") as name:
            folder = Path(name)
            (folder / "candidate.cu").write_text(source)
            deadline = time.monotonic() + timeout_s
            log = ""
            for command in self._commands(arch):
                status, said = self._run(command, folder, deadline - time.monotonic(), timeout_s)
                log += said
                if status:
                    return Built(False, log)
            return self._collect(folder, log)

    def _collect(self, folder: Path, log: str) -> Built:
        ptx, cubin = folder / "candidate.ptx", folder / "candidate.cubin"
        return Built(True, log, ptx.read_bytes(), cubin.read_bytes())

    def pack(self, source: str, wanted: Wanted, timeout_s: float) -> bytes:
        begin = time.perf_counter()
        built = self.build(source, wanted.arch, timeout_s)
        return packed(built, wanted, time.perf_counter() - begin)

    def pack_many(
        self, sources: Sequence[tuple[str, Wanted]], timeout_s: float, jobs: int
    ) -> list[bytes | Uncompilable]:
        if not sources:
            return []
        with tempfile.TemporaryDirectory(prefix="evo-nvcc-") as name:
            root = Path(name)
            commands = []
            for i, (source, wanted) in enumerate(sources):
                (root / str(i)).mkdir()
                (root / str(i) / "candidate.cu").write_text(source)
                steps = " && ".join(shlex.join(step) for step in self._commands(wanted.arch))
                limited = shlex.join(["timeout", "-k", "1", f"{timeout_s:g}", "sh", "-c", steps])
                begin = f'cd {i} && export TMPDIR="$PWD" && : > begun'
                commands.append(f"{begin} && {{ {limited}; echo $? > status; }} > log 2>&1; : > ended")
            rules = [("step", "$command")]
            edges = [
                (f"{i}/ended", "step", [f"{i}/candidate.cu"], {"command": c}) for i, c in enumerate(commands)
            ]
            ninja_build(root, rules, edges, jobs)
            outcomes = enumerate(wanted for _, wanted in sources)
            return [self._outcome(root / str(i), wanted, timeout_s) for i, wanted in outcomes]

    def _outcome(self, folder: Path, wanted: Wanted, timeout_s: float) -> bytes | Uncompilable:
        log = (folder / "log").read_text(errors="replace")
        status = int((folder / "status").read_text())
        seconds = (folder / "ended").stat().st_mtime - (folder / "begun").stat().st_mtime
        if status in (124, 137):
            return Uncompilable("compile timeout", f"no answer within {timeout_s:g} s")
        try:
            return packed(Built(False, log) if status else self._collect(folder, log), wanted, seconds)
        except Uncompilable as error:
            return error

    def _run(self, words: list[str], folder: Path, left_s: float, timeout_s: float) -> tuple[int, str]:
        """Run to the end or to the deadline; what a killed compiler leaves lies in `folder`."""
        command = Command(words, cwd=folder, env={"TMPDIR": str(folder)})
        self._running.add(command)
        try:
            return command.wait(max(0.01, left_s))
        except TimeoutError as late:
            raise Uncompilable("compile timeout", f"no answer within {timeout_s:g} s") from late
        finally:
            self._running.discard(command)

    def close(self) -> None:
        for command in list(self._running):
            command.kill()
