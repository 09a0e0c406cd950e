"""What changes the price of a node of a CUDA graph? It has two values on an H200.

    python benchmarks/node_states.py --commit COMMIT --out nodes.json      # on a GPU

A graph of 256 empty kernels is timed on two streams of a process after each of many things that the process
does on a GPU, each after another process has run a small kernel. All of it with the queues between
host and GPU as they are, and with a single one (CUDA_DEVICE_MAX_CONNECTIONS=1).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probes import Probe

from evo.confirm.rounds import Contest
from evo.device.cuda import CudaDevice
from evo.evaluate import EvaluatorSpec, trial_seed
from evo.gpu import Limits
from evo.rig import real_gpu
from evo.task import load_task
from evo.template import load_template
from evo.timing import TimingSession
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import Stopwatch, TimingSettings

QUEUES = ("", "1")
"""CUDA_DEVICE_MAX_CONNECTIONS; "" is the driver's own."""
TIMES = 3


def other_process() -> None:
    """A small kernel for each line of stdin."""
    import torch

    x = torch.zeros(1 << 20, device="cuda")
    for _ in sys.stdin:
        x.add_(1)
        torch.cuda.synchronize()
        print("done", flush=True)


class Other:
    """Another process on the GPU."""

    def __init__(self) -> None:
        command = [sys.executable, *sys.argv, "--other"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self()

    def __call__(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


class Bench:
    """A GPU, a GREEN kernel, a timing session, and a probe on each of two streams."""

    def __init__(self) -> None:
        gpu = real_gpu("cuda:0")
        self.task = load_task("attention")
        self.problem = self.task.example
        cache = Path(tempfile.gettempdir()) / "evo-nodes-cache"
        self.spec = EvaluatorSpec("attention", "cuda:0", gpu, Limits.of(gpu), cache)
        self.evaluator = self.spec.build()
        assert isinstance(self.evaluator.device, CudaDevice)
        self.device = self.evaluator.device
        self.probes = [Probe(self.device, self.evaluator.compiler) for _ in range(2)]

    def ready(self) -> None:
        """Makes all that is timed."""
        template = load_template(self.task, "flash_wgmma_split")
        self.candidate = template.candidate(template.space.default, self.problem)
        self.green = self.gate()
        self.session = TimingSession(self.device, self.task, self.problem, seed=1)
        self.sets = InputSets(self.device, self.task, self.problem, TimingSettings(), 5)
        self.contest = Contest(self.device, self.task, self.problem, patient=False)

    def gate(self) -> Any:
        return self.evaluator.gate(self.candidate, trial_seed(0, self.candidate), False)

    def inputs(self) -> None:
        InputSets(self.device, self.task, self.problem, TimingSettings(), 3)

    def run(self) -> None:
        self.session.watch.run(self.sets.of_kernel(self.green.kernel, self.green.launch)[:2])

    def judge(self) -> None:
        self.run()
        self.device.synchronize()
        self.sets.judge()

    def measure(self) -> float:
        self.session.incumbent_us = None
        return self.session.measure(self.green).median_us

    def round(self) -> dict[str, float]:
        """A round of CONFIRMED, µs by contestant."""
        taken = self.contest.round("warm", 7, {"s/0": self.green}).samples_us
        return {name: round(statistics.median(samples), 4) for name, samples in taken.items()}

    def nodes(self) -> list[float]:
        """µs of a node on each stream, one after the other."""
        self.device.synchronize()
        return [round(probe.nodes(), 3) for probe in self.probes]


def things(bench: Bench) -> dict[str, Callable[[], Any]]:
    """What a process does, by name."""
    import torch

    small, large = torch.zeros(1024, device="cuda"), torch.zeros(1 << 26, device="cuda")
    host = torch.zeros(1 << 24).pin_memory()
    watch = Stopwatch(bench.device, TimingSettings())
    calls = bench.sets.of_kernel(bench.green.kernel, bench.green.launch)
    replay = watch.capture(calls, 40)

    def streams(count: int, together: bool = False, much: bool = False) -> Callable[[], None]:
        def do() -> None:
            for stream in [torch.cuda.Stream() for _ in range(count)]:
                with torch.cuda.stream(stream):
                    (large if much else small).fill_(0)
                if not together:
                    stream.synchronize()

        return do

    def copy_beside() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            large[: 1 << 24].copy_(host, non_blocking=True)
        for _ in range(20):
            small.fill_(0)

    def syncs() -> None:
        for _ in range(64):
            small.fill_(0)
            torch.cuda.synchronize()

    def events() -> None:
        for _ in range(64):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            event.synchronize()

    return {
        "nothing": lambda: None,
        **{f"{n} streams in turn": streams(n) for n in (1, 8, 12, 16, 20, 24, 28, 31, 32, 48)},
        "2 streams at once": streams(2, together=True, much=True),
        "8 streams at once": streams(8, together=True, much=True),
        "32 streams at once": streams(32, together=True),
        "64 times one stream": syncs,
        "64 events": events,
        "a copy beside": copy_beside,
        "launches": bench.run,
        "capture": lambda: watch.capture(calls, 40),
        "a replay": lambda: watch.sample([replay], 1),
        "40 replays": lambda: watch.sample([replay], 40),
        "inputs": bench.inputs,
        "judge": bench.judge,
        "gate": bench.gate,
        "measure": bench.measure,
        "settle": bench.session.watch.settle,
    }


def within(out: Path) -> None:
    """What is told of one process, whose queues are set."""
    import torch

    bench = Bench()
    record: dict[str, Any] = {"at first": [bench.nodes() for _ in range(TIMES)]}
    bench.ready()
    record["when ready"] = bench.nodes()
    # nobody else: no turns are taken
    with torch.no_grad(), contextlib.closing(Other()) as other:
        record["after the other"] = bench.nodes()
        for name, do in things(bench).items():
            for _ in range(TIMES):
                other()
                do()
                record.setdefault("after the other and", {}).setdefault(name, []).append(bench.nodes())
        for _ in range(TIMES):
            record.setdefault("FAST", []).append(round(bench.measure(), 4))
            other()
            record.setdefault("FAST after the other", []).append(round(bench.measure(), 4))
            other()
            settle, bench.session.watch.settle = bench.session.watch.settle, lambda: None  # type: ignore[method-assign]
            record.setdefault("FAST after the other, unsettled", []).append(round(bench.measure(), 4))
            bench.session.watch.settle = settle  # type: ignore[method-assign]
        record["round"] = bench.round()
        record["after a round"] = bench.nodes()
        other()
        record["round after the other"] = bench.round()
        session_ms = []
        for _ in range(20):
            begin = time.perf_counter()
            bench.session.watch.settle()
            session_ms.append(1e3 * (time.perf_counter() - begin))
        record["settle, ms"] = round(statistics.median(session_ms), 3)
        record["gpu"], record["versions"] = bench.device.name, dict(bench.evaluator.versions)
    print(json.dumps(record), flush=True)
    out.write_text(json.dumps(record))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--queues", nargs="*", default=QUEUES, help="numbers of queues; '' is the driver's own"
    )
    parser.add_argument("--other", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.other:
        other_process()
        return 0
    if options.within:
        within(options.out)
        return 0
    record: dict[str, Any] = {
        "command": "python benchmarks/node_states.py", "commit": options.commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocol": "replays of a graph of 256 empty kernels, µs a node on each of two streams",
    }  # fmt: skip
    for queues in options.queues:
        part = options.out.with_suffix(f".{queues or 'default'}.json")
        environment = dict(os.environ) | ({"CUDA_DEVICE_MAX_CONNECTIONS": queues} if queues else {})
        command = [sys.executable, __file__, "--commit", options.commit, "--out", str(part), "--within"]
        subprocess.run(command, env=environment, check=True)
        record[f"queues: {queues or 'as they are'}"] = json.loads(part.read_text())
        part.unlink()
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
