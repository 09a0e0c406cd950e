"""C++ sources -> a shared library in the cache, by ninja and the host compiler: once for each content."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path

import ninja

from evo.cache import Cache
from evo.errors import MachineError
from evo.trial import digest_of

_RULES = """ninja_required_version = 1.5
rule compile
  command = $cxx $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
rule link
  command = $cxx $flags -shared $in -o $out
"""


@once
def find_host_compiler() -> tuple[str, str]:
    """Path and version line of g++ or clang++; MachineError naming the package if there is neither."""
    for name in ("g++", "clang++", "c++"):
        path = shutil.which(name)
        if path:
            answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                return path, answer.stdout.splitlines()[0]
    raise MachineError(
        "no C++ compiler: the emulator is compiled once, before its first use",
        "install g++ (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++)",
    )


def build_shared_library(name: str, sources: Sequence[Path], flags: Sequence[str], cache: Cache) -> Path:
    """The library `lib<name>.so` of `sources`, built now if the cache has none for their content, the headers
    beside them, the flags and the compiler's version. Says on stderr that it builds.

    Raises MachineError if there is no compiler or it fails (with its first errors).
    """
    cxx, version = find_host_compiler()
    headers = sorted({h for s in sources for h in s.parent.glob("*.h*")})
    content = [text.read_bytes() for text in (*sources, *headers)]
    key = digest_of("shared library", name, list(flags), version, *content)

    def build(folder: Path) -> None:
        _run_ninja(name, folder, _build_file(name, folder, sources, flags, cxx), len(sources) + 1)
        for scrap in (*folder.glob("*.o"), *folder.glob("*.d"), *folder.glob(".ninja*")):
            scrap.unlink()

    return cache.build_once(key, build) / f"lib{name}.so"


def _build_file(name: str, folder: Path, sources: Sequence[Path], flags: Sequence[str], cxx: str) -> str:
    def quoted(path: Path | str) -> str:
        return re.sub(r"([$ :])", r"$\1", str(path))

    objects = [f"{source.stem}.o" for source in sources]
    lines = [_RULES, f"cxx = {cxx}", f"flags = {' '.join(flags)}"]
    lines += [f"build {o}: compile {quoted(s.resolve())}" for o, s in zip(objects, sources, strict=True)]
    lines.append(f"build {quoted(f'lib{name}.so')}: link {' '.join(objects)}")
    path = folder / "build.ninja"
    path.write_text("\n".join(lines) + "\n")
    return path.name


def _run_ninja(name: str, folder: Path, build_file: str, steps: int) -> None:
    """Run the build with one progress line, rewritten in place on a terminal."""
    tool = Path(ninja.BIN_DIR) / "ninja"
    command = [str(tool), "-C", str(folder), "-f", build_file]
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    begin = time.perf_counter()
    live = sys.stderr.isatty()
    print(f"building {name} (once, {steps} steps) …", end="" if live else "\n", file=sys.stderr, flush=True)
    output = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            output.append(line)
            done = re.match(r"\[(\d+)/\d+\]", line)
            if live and done:
                print(f"\rbuilding {name} (once) {done[1]}/{steps} …", end="", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begin
    print(
        f"{chr(13) if live else ''}built {name} in {seconds:.0f} s".ljust(60 if live else 0), file=sys.stderr
    )
    if running.returncode:
        errors = [line for line in output if "error" in line] or output[-10:]
        raise MachineError(f"{name} does not compile", "".join(errors[:8]).strip())
