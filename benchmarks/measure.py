"""Measures the committed results again, one after the other, each as long as there is time for it.

    python benchmarks/measure.py                              # every result: when, at which commit, by what
    python benchmarks/measure.py --out DIR --minutes 28       # all that this machine can measure
    python benchmarks/measure.py --out DIR gate-cost minutes  # these alone

results.toml says what there is, and in which order. A result that lies in DIR already is left out, so that a
second call goes on where the first one ended. What has not begun when the time is over is named. A benchmark
that is at work then is interrupted: what it has written by then is kept as NAME.part.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.record import gpus_and_driver, write

GRACE_S = 20
"""What a benchmark gets to end by itself after an interrupt."""


@dataclass(frozen=True)
class Result:
    """One result: the name of its file without the GPU's, and what results.toml says of it."""

    name: str
    benchmark: str
    minutes: float
    gpus: int = 0
    without: bool = False
    asks: str = ""

    def file(self, gpu: str) -> str:
        """`gate-cost-h200.json` on an NVIDIA H200; `gpu` is the name of the machine's, or "none"."""
        words = re.findall(r"[a-z]*[0-9][a-z0-9]*", gpu.lower())
        return f"{self.name}-{words[0]}.json" if self.gpus and words else f"{self.name}.json"

    def why_not(self, gpus: Sequence[str]) -> str:
        """Why it cannot be measured with these GPUs; "" where it can."""
        if self.asks:
            return f"by hand: needs {self.asks}"
        if len(gpus) < self.gpus:
            return f"needs {self.gpus} GPU{'s' * (self.gpus > 1)}"
        return "is measured without a GPU" if self.without and gpus else ""

    def words(self, state: str, file: str) -> list[str]:
        """What run.py is told; `state` is the folder that later calls go on from."""
        return [*shlex.split(self.benchmark.replace("{state}", state)), "--out", file]


def listed() -> list[Result]:
    """What results.toml has, in its order."""
    found = tomllib.loads((HERE / "results.toml").read_text(encoding="utf-8"))
    return [Result(name, **about) for name, about in found.items()]


def show(every: Sequence[Result]) -> None:
    """A line for each result: the newest that is committed, and what measures it."""
    width = max(len(one.name) for one in every)
    for one in every:
        newest = "not measured yet"
        for path in sorted((HERE / "results").glob(f"{one.name}*.json")):
            if path.stem == one.name or re.fullmatch(rf"{one.name}-[a-z]*[0-9][a-z0-9]*", path.stem):
                entry = json.loads(path.read_text(encoding="utf-8"))
                newest = f"{entry['date'][:10]} {entry['commit'][:10]}"
        asks = f"   ({one.asks})" if one.asks else ""
        print(f"{one.name:<{width}}  {newest:<21}  {one.minutes:>3g} min  {one.benchmark}{asks}")


def measure(one: Result, folder: Path, gpu: str, end: float) -> str:
    """Runs its benchmark until `end` at most, and says how that went."""
    file = folder / one.file(gpu)
    part = file.with_name(f"{file.stem}.part.json")
    words = one.words(str(folder / f"{one.name}.state"), str(part))
    begin = time.monotonic()
    command = [sys.executable, str(HERE / "run.py"), *words]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        status = child.wait(max(1.0, end - begin))
    except subprocess.TimeoutExpired:
        stop(child)
        return "interrupted: no time is left"
    except KeyboardInterrupt:
        stop(child)
        raise
    if status or not part.is_file():
        return f"failed (exit code {status})"
    entry = json.loads(part.read_text(encoding="utf-8"))
    again = shlex.join(one.words("DIR", f"benchmarks/results/{file.name}"))
    write(file, entry | {"command": f"python benchmarks/run.py {again}"})
    part.unlink()
    return f"{time.monotonic() - begin:.0f} s"


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends a benchmark and all that it has started: an interrupt first, as by Ctrl-C."""
    os.killpg(child.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of results.toml (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results are written")
    parser.add_argument("--minutes", type=float, default=1e6, help="what all of them may take")
    asked = parser.parse_args(words)
    every = listed()
    if unknown := set(asked.names) - {one.name for one in every}:
        parser.error(f"no result {', '.join(sorted(unknown))}; without --out all are listed")
    chosen = [one for one in every if not asked.names or one.name in asked.names]
    if asked.out is None:
        show(chosen)
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    gpus, _ = gpus_and_driver()
    gpu, end, failed = gpus[0] if gpus else "none", time.monotonic() + 60 * asked.minutes, False
    for one in chosen:
        left = max(0.0, end - time.monotonic()) / 60
        said = one.why_not(gpus)
        if not said and (asked.out / one.file(gpu)).is_file():
            said = "is there"
        elif not said and left < one.minutes:
            said = f"not begun: takes {one.minutes:g} min, {left:.1f} are left"
        elif not said:
            print(f"{one.name}: {one.benchmark}", file=sys.stderr, flush=True)
            said = measure(one, asked.out, gpu, end)
            failed |= not said.endswith(" s")
        print(f"{one.name}: {said}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
