"""Builds by ninja: many commands at once, in a folder; a shared library of C++ among them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from evo.cache import Build, Cache, tell_build
from evo.compile.ptxas import first_errors
from evo.compile.toolkit import host_compiler
from evo.cores import usable_cores
from evo.errors import MachineError
from evo.trial import digest_of

Edge = tuple[str, str, list[str], dict[str, str]]
"""What is made, by which rule, of what, and the rule's variables."""
_EDGE_ENDED = re.compile(r"\[\d+/\d+\] ")
MOST_CORES_THAT_SHARE = 4
"""With more of them, all wait longer for the shared header than each would take to parse it."""


def build_shared_library(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    cache: Cache,
    progress: Callable[[Build], None] = tell_build,
    *,
    headers: Sequence[Path] = (),
    shared: Path | None = None,
    jobs: int | None = None,
) -> Path:
    """`lib<name>.so` of C++ `sources`, built once by ninja with the host compiler; the path in the cache.

    The key has the compiler, the flags and the content of `sources` and `headers`. Where cores are few, the
    header that most sources begin with, `shared`, is parsed once, before them, instead of once for each.
    `progress` is told of a build when it begins and after each step. Raises MachineError without a C++
    compiler, or if it says no.
    """
    compiler = str(host_compiler())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    texts = [[path.name, path.read_text()] for path in (*sources, *headers)]
    key = digest_of(name, version, list(flags), texts)

    def build(folder: Path) -> None:
        cores = jobs or usable_cores()
        parsed = folder / "shared.hpp.gch"
        first = shared if cores <= MOST_CORES_THAT_SHARE else None
        if first:
            parsed.with_suffix("").write_text(f'#include "{first.resolve()}"\n')
        compile_flags = shlex.join([compiler, *flags, "-fPIC"])
        command = f"{compile_flags} {'-include shared.hpp ' if first else ''}-c $in -o $out"
        rules = [("cxx", command), ("link", f"{shlex.join([compiler, *flags])} -shared $in -o $out")]
        objects = [f"{path.stem}.o" for path in sources]
        edges: list[Edge] = [
            (o, "cxx", [str(path.resolve())], {}) for o, path in zip(objects, sources, strict=True)
        ]
        edges.append((f"lib{name}.so", "link", objects, {}))
        with _steps(name, len(edges) + bool(first), progress) as step:
            if first:
                header: Edge = (parsed.name, "header", [parsed.stem], {})
                parses = ("header", f"{compile_flags} -x c++-header $in -o $out")
                ninja_build(folder, [parses], [header], 1, step)
            ninja_build(folder, rules, edges, cores, step)
        for path in folder.iterdir():
            if path.suffix != ".so":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    try:
        return cache.build_once(key, build) / f"lib{name}.so"
    except OSError as error:
        hint = "choose another folder: --cache DIR"
        raise MachineError(f"cannot write to the cache {cache.root}: {error.strerror}", hint) from error


@contextmanager
def _steps(name: str, total: int, progress: Callable[[Build], None]) -> Iterator[Callable[[], None]]:
    """Tells `progress` that a build begins, and of each step that it then gets told of; or that it failed."""
    begin, ended = time.perf_counter(), count()

    def step(failed: bool = False) -> None:
        progress(Build(name, next(ended), total, time.perf_counter() - begin, failed))

    step()
    try:
        yield step
    except BaseException:
        step(failed=True)
        raise


def ninja_build(
    folder: Path,
    rules: Sequence[tuple[str, str]],
    edges: Sequence[Edge],
    jobs: int,
    step: Callable[[], None] = lambda: None,
) -> None:
    """Write `build.ninja` into `folder` and run it there; `step` is called after each edge. MachineError with
    the output if one fails."""
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
    run = [program, "-j", str(max(1, jobs)), "-k", "0"]
    said = []
    with subprocess.Popen(
        run, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
    ) as running:  # fmt: skip
        assert running.stdout is not None
        try:
            for line in running.stdout:
                said.append(line)
                if _EDGE_ENDED.match(line):
                    step()
        except BaseException:
            running.kill()
            raise
    if running.returncode:
        raise MachineError("a build failed:\n" + first_errors("".join(said)))
