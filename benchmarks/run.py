"""Lists the benchmarks and runs them.

    python benchmarks/run.py                                             # the names, one line each
    python benchmarks/run.py gate/cost --help                            # what one of them measures and takes
    python benchmarks/run.py gate/cost --out benchmarks/results/gate-cost-h200.json

A benchmark is a module of a folder beside this file that defines

    PROTOCOL         what is measured and how: a sentence or two for the result
    GPU              whether it runs on the GPU of the machine, if there is one
    options(parser)  adds what it may be told
    run(asked)       measures, and yields its figures whenever there are new ones; the last are the result

Each time that it yields, the whole result is written (see `record.py`). Without `--out` the last result
is printed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `evo` does, before NumPy is there

import argparse
import ast
import importlib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import record

FOLDERS = ("search", "gate", "timing", "emulator", "attention", "rows", "gemm", "leaving")


class Benchmark(Protocol):
    """What a module defines to be a benchmark."""

    PROTOCOL: str
    GPU: bool

    def options(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, asked: argparse.Namespace) -> Iterator[dict[str, Any]]: ...


def benchmarks() -> dict[str, str]:
    """The first line of every benchmark's docstring, by its name. Nothing is imported."""
    found = {}
    for path in sorted(file for folder in FOLDERS for file in (HERE / folder).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            said = ast.get_docstring(tree) or ""
            found[f"{path.parent.name}/{path.stem}"] = said.split("\n\n")[0].replace("\n", " ")
    return found


def load(name: str) -> Benchmark:
    """The benchmark of that name."""
    return cast(Benchmark, importlib.import_module("benchmarks." + name.replace("/", ".")))


def main(words: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if words is None else words)
    known = benchmarks()
    if not given or given[0].startswith("-"):
        width = max(map(len, known))
        print("\n".join(f"{name:<{width}}  {said}" for name, said in known.items()))
        return 0
    name = given[0].removesuffix(".py")
    if name not in known:
        print(f"error: no benchmark {name}\nhint: python benchmarks/run.py lists them", file=sys.stderr)
        return 2
    benchmark = load(name)
    parser = argparse.ArgumentParser(
        prog=f"run.py {name}", description=benchmark.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the result is written")
    benchmark.options(parser)
    asked = parser.parse_args(given[1:])
    command = f"python benchmarks/run.py {shlex.join(given)}"
    about = record.surroundings(benchmark.PROTOCOL, command, benchmark.GPU)
    entry: dict[str, Any] = {}
    for results in benchmark.run(asked):
        entry = record.finished(about, results)
        if asked.out:
            record.write(asked.out, entry)
    if not asked.out:
        print(json.dumps(entry, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # all is written: torch's profiler was seen to abort a process at its end
