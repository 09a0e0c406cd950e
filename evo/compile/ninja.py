"""Builds by ninja: many commands at once, in a folder; a shared library of C++ among them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from evo.cache import Cache
from evo.compile.ptxas import first_errors
from evo.compile.toolkit import host_compiler
from evo.errors import MachineError
from evo.trial import digest_of


def build_shared_library(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    cache: Cache,
    progress: Callable[[str], None] = lambda _: None,
    *,
    headers: Sequence[Path] = (),
    jobs: int | None = None,
) -> Path:
    """`lib<name>.so` of C++ `sources`, built once by ninja with the host compiler; the path in the cache.

    The key has the compiler, the flags and the content of `sources` and `headers`. `progress` gets one line
    when a build begins and one when it ended. Raises MachineError without a C++ compiler, or if it says no.
    """
    compiler = str(host_compiler())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    texts = [[path.name, path.read_text()] for path in (*sources, *headers)]
    key = digest_of(name, version, list(flags), texts)

    def build(folder: Path) -> None:
        progress(f"building {name} ({len(sources)} files, once)")
        begin = time.perf_counter()
        compile_flags = [*flags, "-fPIC", "-MMD", "-MF"]
        command = f"{shlex.quote(compiler)} {shlex.join(compile_flags)} $out.d -c $in -o $out"
        link = f"{shlex.quote(compiler)} {shlex.join(flags)} -shared $in -o $out"
        objects = [f"{path.stem}.o" for path in sources]
        edges: list[tuple[str, str, list[str], dict[str, str]]] = [
            (o, "cxx", [str(path.resolve())], {}) for o, path in zip(objects, sources, strict=True)
        ]
        edges.append((f"lib{name}.so", "link", objects, {}))
        ninja_build(folder, [("cxx", command), ("link", link)], edges, jobs or os.cpu_count() or 1)
        for path in folder.iterdir():
            if path.suffix != ".so":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        progress(f"built {name} in {time.perf_counter() - begin:.1f} s")

    try:
        return cache.build_once(key, build) / f"lib{name}.so"
    except OSError as error:
        raise MachineError(f"cannot write to the cache {cache.root}: {error.strerror}") from error


def ninja_build(
    folder: Path,
    rules: Sequence[tuple[str, str]],
    edges: Sequence[tuple[str, str, list[str], dict[str, str]]],
    jobs: int,
) -> None:
    """Write `build.ninja` into `folder` and run it there; MachineError with the output if a step fails."""
    import ninja
    from ninja.ninja_syntax import Writer

    with (folder / "build.ninja").open("w") as file:
        writer = Writer(file)  # type: ignore[arg-type]  # its stub wants a str
        for rule, command in rules:
            writer.rule(rule, command)
        for output, rule, inputs, variables in edges:
            escaped = {k: v.replace("$", "$$") for k, v in variables.items()}
            writer.build([output], rule, inputs, variables=escaped)
    program = str(Path(ninja.BIN_DIR) / "ninja")
    done = subprocess.run(
        [program, "-j", str(max(1, jobs)), "-k", "0"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MachineError("a build failed:\n" + first_errors(done.stdout + done.stderr))
