"""What changes the price of a node of a CUDA graph? It has two values on an H200.

    python benchmarks/node_states.py --commit COMMIT --out nodes.json      # on a GPU

A graph of 256 empty kernels is timed before and after each of many things that a process does on a GPU, first
in a process that has done nothing else, then each after another process has run a small kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probes import Probe

from evo.device.cuda import CudaDevice
from evo.evaluate import EvaluatorSpec, trial_seed
from evo.gpu import Limits
from evo.rig import real_gpu
from evo.task import load_task
from evo.template import load_template
from evo.timing import TimingSession
from evo.timing.inputs import InputSets
from evo.timing.stopwatch import TimingSettings
from evo.trial import Candidate

TIMES = 5
WHATS = ("kernel", "copies", "gate")
"""What the other process does when it is asked: a small kernel, with copies, the gate of a candidate."""


def other_process() -> None:
    """Does each line of stdin on the GPU, and says so."""
    import torch

    bench = Bench()
    bench.candidate = bench.default()
    bench.gate()
    x = torch.zeros(1 << 20, device="cuda")
    for line in sys.stdin:
        x.add_(1)
        if "copies" in line:
            x.copy_(x.cpu())
            x.double().sum().item()
        if "gate" in line:
            bench.gate()
        torch.cuda.synchronize()
        print("done", flush=True)


class Other:
    """Another process on the GPU."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *sys.argv, "--other"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self("kernel")

    def __call__(self, what: str = "gate") -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


def things(bench: Bench) -> dict[str, Callable[[], Any]]:
    """What a process does, by name."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    device = bench.device
    small, large = torch.zeros(1024, device="cuda"), torch.zeros(1 << 24, device="cuda")
    pinned, pageable = torch.zeros(1 << 20).pin_memory(), torch.zeros(1 << 20)
    q = torch.randn(1, 8, 512, 64, device="cuda", dtype=torch.float16)
    wide = torch.randn(1024, 1024, device="cuda")

    def elsewhere() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            small.fill_(0)

    def capture() -> None:
        bench.watch.capture([lambda: small.fill_(0)], 4)

    def together() -> None:
        streams = [torch.cuda.Stream() for _ in range(2)]
        for stream in streams * 4:
            with torch.cuda.stream(stream):
                large.fill_(0)

    def allocate() -> None:
        torch.cuda.empty_cache()
        torch.empty(64 << 20, device="cuda")
        torch.cuda.empty_cache()

    return {
        "nothing": lambda: None,
        "30 ms": lambda: time.sleep(0.03),
        "300 ms": lambda: time.sleep(0.3),
        "fill, default stream": lambda: small.fill_(0),
        "fill, a new stream": elsewhere,
        "two streams at once": together,
        "fill of 64 MB": lambda: large.fill_(0),
        "H2D 4 KB": lambda: small.copy_(pageable[:1024]),
        "H2D 4 MB": pageable.cuda,
        "H2D 4 MB pinned": lambda: pinned.cuda(non_blocking=True),
        "D2H 4 KB": small.cpu,
        "D2H 4 MB": large[: 1 << 20].cpu,
        "H2D 64 MB": lambda: large.copy_(torch.zeros(1 << 24)),
        "D2D": large.clone,
        "malloc, free": allocate,
        "capture": capture,
        "load, unload": lambda: device.load(bench.green.kernel.binary, bench.candidate.launch),
        "NVML": device.clocks,
        "NVML processes": device.other_processes,
        "all shared memory": device.dirty_shared_memory,
        "matmul": lambda: wide @ wide,
        "fp64": lambda: wide.double() @ wide.double(),
        "sdpa": lambda: sdpa(q, q, q),
        "gate": bench.gate,
        "inputs": lambda: InputSets(device, bench.task, bench.problem, TimingSettings(), 3),
        "judge": bench.judge,
        "measure": bench.measure,
    }


class Bench:
    """A GPU, a GREEN kernel, a timing session, and the probe."""

    def __init__(self) -> None:
        gpu = real_gpu("cuda:0")
        self.task = load_task("attention")
        self.problem = self.task.example
        self.spec = EvaluatorSpec("attention", "cuda:0", gpu, Limits.of(gpu), Path("/tmp/evo-nodes-cache"))
        self.evaluator = self.spec.build()
        assert isinstance(self.evaluator.device, CudaDevice)
        self.device = self.evaluator.device
        self.probe = Probe(self.device, self.evaluator.compiler)

    def default(self) -> Candidate:
        template = load_template(self.task, "flash_wgmma_split")
        return template.candidate(template.space.default, self.problem)

    def ready(self) -> None:
        """Makes all that is timed."""
        self.candidate = self.default()
        self.green = self.gate()
        self.session = TimingSession(self.device, self.task, self.problem, seed=1)
        self.watch = self.session.watch
        self.sets = InputSets(self.device, self.task, self.problem, TimingSettings(), 5)

    def gate(self) -> Any:
        return self.evaluator.gate(self.candidate, trial_seed(0, self.candidate), False)

    def judge(self) -> None:
        calls = self.sets.of_kernel(self.green.kernel, self.green.launch)
        self.watch.run(self.sets.turned(calls, 4))
        self.sets.judge()

    def measure(self) -> float:
        self.session.incumbent_us = None
        return self.session.measure(self.green).median_us

    def node_us(self) -> float:
        self.device.synchronize()
        return self.probe.nodes()


def trial(bench: Bench, name: str, do: Callable[[], Any], first: Callable[[], None] | None) -> dict[str, Any]:
    """A node's price before and after, and what a FAST time is right after (median of TIMES)."""
    before, after, fast = [], [], []
    for _ in range(TIMES):
        if first:
            first()
        before.append(bench.node_us())
        do()
        after.append(bench.node_us())
        if first:
            first()
            do()
            bench.device.synchronize()
            fast.append(bench.measure())
    row = {"what": name, "before_us": statistics.median(before), "after_us": statistics.median(after),
           "after_all": [round(us, 3) for us in after]}  # fmt: skip
    if fast:
        row["fast_us"] = statistics.median(fast)
    print(row, flush=True)
    return row


def decay(bench: Bench, other: Other, busy: bool) -> list[tuple[float, float]]:
    """A node's price so many ms after the other process, with replays in between or without."""
    found: list[tuple[float, float]] = []
    for ms in (0, 2, 5, 10, 20, 40, 80, 160, 320):
        prices = []
        for _ in range(3):
            other()
            end = time.perf_counter() + ms / 1e3
            while time.perf_counter() < end:
                if busy:
                    bench.node_us()
                else:
                    time.sleep(1e-4)
            prices.append(bench.node_us())
        found.append((ms, round(statistics.median(prices), 4)))
    print("busy" if busy else "idle", found, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--other", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.other:
        other_process()
        return 0
    import torch

    bench = Bench()
    record: dict[str, Any] = {
        "command": "python benchmarks/node_states.py", "commit": options.commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": bench.device.name,
        "versions": bench.evaluator.versions,
        "protocol": "replays of a graph of 256 empty kernels; medians of " + str(TIMES),
        "at first": [round(bench.node_us(), 4) for _ in range(5)],
    }  # fmt: skip
    print(record["at first"], flush=True)
    bench.ready()
    record["when ready"] = [round(bench.node_us(), 4) for _ in range(5)]
    print(record["when ready"], flush=True)
    # nobody else: no turns are taken, so that the other's gate may run while this process waits for it
    with torch.no_grad(), contextlib.closing(Other()) as other:
        record["after the other's start"] = [round(bench.node_us(), 4) for _ in range(5)]
        print(record["after the other's start"], flush=True)
        for what in WHATS:
            for _ in range(3):
                other(what)
                record.setdefault(f"after its {what}", []).append(round(bench.node_us(), 4))
        doing = things(bench)
        record["by itself"] = [trial(bench, name, do, None) for name, do in doing.items()]
        record["after the other"] = [trial(bench, name, do, other) for name, do in doing.items()]
        record["decay, idle"] = decay(bench, other, False)
        record["decay, busy"] = decay(bench, other, True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
