"""What the timing engine is worth, measured on a GPU: A/A, a planted 1 %, agreement with other timers, an
empty node, repeatability in new processes, and what a time costs.

    python benchmarks/timing_evidence.py --commit COMMIT --out benchmarks/results/timing-h200.json

An `--out` that is there already is updated part by part; each part says its commit and date.

About five minutes on an H200; `--only aa,agreement,…` measures a part. The kernel is the default point of
`flash_mma` or, on Hopper and for short sequences, of `flash_wgmma_split`. Every confirmation is by the rule
of CONFIRMED: rounds, samples, level and verdicts are those of evo/timing/contest.py and
evo/timing/statistics.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from evo.rig import real_gpu

from evo.confirm import ROUNDS
from evo.confirm.rounds import SAMPLES, Contest
from evo.device.cuda import CudaDevice
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed
from evo.gate import Green
from evo.gpu import Limits
from evo.task import Tunable, load_task
from evo.template import load_template
from evo.timing import TimingSession, time_variants
from evo.timing.inputs import InputSets
from evo.timing.statistics import LEVEL, standings
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay
from evo.trial import LaunchConfig, Problem, Round

SHAPES = ("1,8,512,64", "1,8,1024,64", "1,8,2048,64", "4,16,2048,64", "2,16,4096,64", "2,16,4096,128")
FINALISTS = 5
LAUNCHES = 8
"""Of each shape under Nsight Compute."""
PLANTED = 0.01
LAUNCHES_PLANTED = 72
"""A replay of about 300 µs, as the engine itself chooses."""
PROBES = (2000, 6000)
"""Clock cycles of the first two tries for a planted difference."""
CALIBRATION_ROUNDS = 12
REST_S = 0.1
"""Before two timers are compared: the clock recovers from what was measured before."""


class Bench:
    """A GPU, its tools, and GREEN kernels of a template's default point."""

    def __init__(self) -> None:
        gpu = real_gpu("cuda:0")
        self.task = load_task("attention")
        self.cache = Path(tempfile.mkdtemp(prefix="evo-evidence-"))
        self.spec = EvaluatorSpec("attention", "cuda:0", gpu, Limits.of(gpu), self.cache)
        self.evaluator: Evaluator = self.spec.build()
        assert isinstance(self.evaluator.device, CudaDevice)
        self.device = self.evaluator.device
        self.template = "flash_wgmma_split" if gpu.compute_capability == (9, 0) else "flash_mma"

    def green(self, problem: Problem) -> Green:
        name = self.template if problem["L"] <= 1024 else "flash_mma"
        template = load_template(self.task, name)
        feasible = template.space.feasible(self.spec.limits, problem)
        default = template.space.default
        point = default if feasible.contains(default) else feasible.points[0]
        candidate = template.candidate(point, problem)
        return self.evaluator.gate(candidate, trial_seed(0, candidate), False)

    def idle_kernel(self, source: str, entry: str) -> Call:
        """A launch of one warp that has nothing to do with attention."""
        compiler, launch = self.evaluator.compiler, LaunchConfig((1, 1, 1), (32, 1, 1), 0, ())
        kernel = self.device.load(compiler.compile(source, entry, self.device.gpu.arch), launch)
        return lambda: kernel.start(launch, {})


# ---- A/A, and a planted difference


class Pairs:
    """Confirmations in which all finalists and the only baseline are one kernel; `extra` is launched at the
    end of each replay of the baseline, and makes it slower."""

    def __init__(self, bench: Bench, extra: Call | None = None) -> None:
        self.bench, self.extra = bench, extra
        self.problem = bench.task.example
        self.green = bench.green(self.problem)

    def confirmation(self, seed: int, rounds: int) -> list[Round]:
        """Rounds of FINALISTS and a baseline, as Contest holds them."""
        return [self._round(seed * 1000 + number) for number in range(rounds)]

    def _round(self, seed: int) -> Round:
        import random

        import torch

        bench, settings = self.bench, TimingSettings()
        rng = random.Random(seed)
        with torch.no_grad(), bench.device.alone():
            torch.cuda.empty_cache()
            spacer = torch.empty(rng.randrange(1, 64) << 20, dtype=torch.uint8, device="cuda")
            watch = Stopwatch(bench.device, settings)
            sets = InputSets(bench.device, bench.task, self.problem, settings, seed)
            replays, held = {}, []
            for name in (*(f"s/{i}" for i in range(FINALISTS)), "base"):
                calls: Sequence[Call] = sets.of_kernel(self.green.kernel, self.green.launch)
                launches = launches_per_replay(watch.estimate(calls), settings)
                if self.extra:
                    launches = LAUNCHES_PLANTED
                chain = [calls[i % len(calls)] for i in range(launches)]
                if name == "base" and self.extra:
                    chain.append(self.extra)
                replays[name] = Replay(watch.capture(chain, len(chain)).graph, launches)
                held.append(calls)
            order = list(replays)
            rng.shuffle(order)
            watch.settle()
            watch.sample([replays[name] for name in order], 1)
            taken = watch.sample([replays[name] for name in order], SAMPLES, lead=True)
            del spacer
        samples = {name: tuple(map(float, taken[order.index(name)])) for name in replays}
        return Round("warm", seed, samples)


def aa(bench: Bench, extra: Call | None = None, comparisons: int = 300) -> dict[str, Any]:
    """One kernel against itself, or against itself with extra work."""
    pairs = Pairs(bench, extra)
    names = [f"s/{i}" for i in range(FINALISTS)]
    verdicts, ratios, widths = [], [], []
    for seed in range(comparisons // FINALISTS):
        rounds = pairs.confirmation(seed + 1, ROUNDS["warm"])
        for standing in (standings(rounds, names, ["base"])[name] for name in names):
            assert standing.speedup is not None
            assert standing.speedup_interval is not None
            verdicts.append(standing.verdict)
            ratios.append(standing.speedup)
            widths.append(standing.speedup_interval.high - standing.speedup_interval.low)
    return {
        "rounds": ROUNDS["warm"],
        "samples": SAMPLES,
        "level": LEVEL,
        "comparisons": len(verdicts),
        "faster": verdicts.count("faster"),
        "lost": verdicts.count("slower"),
        "median_ratio": float(np.median(ratios)),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "median_interval_width": float(np.median(widths)),
    }


def planted(bench: Bench) -> dict[str, Any]:
    """The baseline does PLANTED more: a warp that counts clock cycles at the end of each replay. How many
    cycles that takes is found by trying (a node of a graph has a price, too), and checked by what comes
    out."""
    tried = [(cycles, _slowdown(bench, cycles)) for cycles in PROBES]
    for _ in range(2):
        (c0, r0), (c1, r1) = tried[-2:]
        cycles = max(1, round(c1 + (PLANTED - r1) * (c1 - c0) / (r1 - r0))) if r1 != r0 else c1
        tried.append((cycles, _slowdown(bench, cycles)))
    cycles = min(tried, key=lambda one: abs(one[1] - PLANTED))[0]
    found = aa(bench, _spinner(bench, cycles), 100)
    return {"planted": PLANTED, "cycles": cycles, "calibration": tried} | found


def _spinner(bench: Bench, cycles: int) -> Call:
    source = (
        'extern "C" __global__ void spin() {'
        f" const long long begin = clock64(); while (clock64() - begin < {cycles}); }}"
    )
    return bench.idle_kernel(source, "spin")


def _slowdown(bench: Bench, cycles: int) -> float:
    """By what share the baseline is slower with an extra node of so many cycles."""
    rounds = Pairs(bench, _spinner(bench, cycles)).confirmation(900_000 + cycles, CALIBRATION_ROUNDS)
    logs = [
        np.log(np.median(r.samples_us["base"]))
        - np.mean([np.log(np.median(r.samples_us[f"s/{i}"])) for i in range(FINALISTS)])
        for r in rounds
    ]
    return float(np.exp(np.mean(logs)) - 1)


# ---- other timers


def agreement(bench: Bench) -> list[dict[str, Any]]:
    """Our median against Triton's do_bench_cudagraph, for our kernel and for baselines, on one set of inputs
    (as Triton has it): in turns, both for a few milliseconds on a GPU that has rested; and then, after Triton
    has kept the GPU busy for as long as it does by itself, both at once again. A kernel that draws much power
    lowers the clock within that time, so clock and power are read after each."""
    found = []
    for shape in SHAPES:
        for name, own, watch in _contestants(bench, shape):
            found.append({"shape": shape, "kernel": name} | _beside_triton(bench, own, watch))
    return found


def _contestants(bench: Bench, shape: str) -> list[tuple[str, Sequence[Call], Stopwatch]]:
    settings = TimingSettings(sets=1)
    problem = bench.task.problem(shape)
    green = bench.green(problem)
    sets = InputSets(bench.device, bench.task, problem, settings, 9)
    baselines = bench.task.baselines(problem, bench.device.torch_device)
    calls: dict[str, Sequence[Call]] = {name: sets.of_baseline(run) for name, run in baselines.items()}
    calls["ours"] = sets.of_kernel(green.kernel, green.launch)
    if problem["L"] > 2048:
        del calls["math"]
    watch = Stopwatch(bench.device, settings)
    return [(name, own, watch) for name, own in calls.items()]


def _beside_triton(bench: Bench, own: Sequence[Call], watch: Stopwatch) -> dict[str, Any]:
    import torch
    from triton.testing import do_bench_cudagraph

    def ours(replay: Replay) -> float:
        watch.sample([replay], 2)
        (samples,) = watch.sample([replay], 10, lead=True)
        return float(np.median(samples))

    def theirs(rep: int) -> float:
        return 1e3 * float(do_bench_cudagraph(own[0], rep=rep, return_mode="median"))

    row: dict[str, Any] = {}
    with torch.no_grad(), bench.device.alone():
        watch.run(own)
        replay = watch.capture(own, launches_per_replay(watch.estimate(own), watch.settings))
        bench.device.finish()
        time.sleep(REST_S)
        taken: dict[str, list[float]] = {"evo": [], "triton": []}
        for which in ("evo", "triton", "triton", "evo") * 2:
            taken[which].append(ours(replay) if which == "evo" else theirs(2))
            row |= _clocks(bench, which)
        row |= {f"{which}_us": float(np.median(values)) for which, values in taken.items()}
        row |= {"triton_long_us": theirs(20), **_clocks(bench, "triton_long")}
        row |= {"evo_after_us": ours(replay), **_clocks(bench, "evo_after")}
    row["ratio"] = row["evo_us"] / row["triton_us"]
    row["ratio_long"] = row["evo_us"] / row["triton_long_us"]
    row["ratio_after"] = row["evo_after_us"] / row["triton_long_us"]
    return row


def _clocks(bench: Bench, label: str) -> dict[str, float | None]:
    """SM clock and power right after a measurement."""
    read = bench.device.clocks.readings()
    return {f"{label}_mhz": read.get("sm_mhz"), f"{label}_w": read.get("power_w")}


def by_ncu() -> list[dict[str, Any]]:
    """What Nsight Compute says of our kernel's duration: one launch, its caches left as they are."""
    command = [
        "ncu", "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off",
        "--metrics", "gpu__time_duration.sum", "--csv", "--print-units", "base",
        sys.executable, __file__, "--commit", "", "--only", "launches",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = list(csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"')))
    times = [float(row["Metric Value"].replace(",", "")) / 1e3 for row in rows]
    if len(times) != LAUNCHES * len(SHAPES):
        return [{"failed": (done.stdout + done.stderr)[-600:]}]
    return [
        {"shape": shape, "ncu_us": float(np.median(times[LAUNCHES * i : LAUNCHES * (i + 1)]))}
        for i, shape in enumerate(SHAPES)
    ]


def launches(bench: Bench) -> None:
    """What `by_ncu` looks at."""
    import torch

    for shape in SHAPES:
        problem = bench.task.problem(shape)
        green = bench.green(problem)
        sets = InputSets(bench.device, bench.task, problem, TimingSettings(), 9)
        calls = sets.of_kernel(green.kernel, green.launch)
        for call in calls:
            call()
        bench.device.finish()
        torch.cuda.cudart().cudaProfilerStart()
        for i in range(LAUNCHES):
            calls[i % len(calls)]()
        bench.device.finish()
        torch.cuda.cudart().cudaProfilerStop()


def empty_node(bench: Bench) -> dict[str, float]:
    """An empty kernel, as a node of a graph of 256: in a new process, and as it is when others are timed."""
    call = bench.idle_kernel('extern "C" __global__ void empty() {}', "empty")
    watch = Stopwatch(bench.device, TimingSettings())
    replay = watch.capture([call], 256)
    watch.sample([replay], 2)
    (samples,) = watch.sample([replay], 40, lead=True)
    watch.settle()
    (settled,) = watch.sample([replay], 40, lead=True)
    return {
        "median_us": float(np.median(samples)), "low_us": float(samples.min()),
        "settled_us": float(np.median(settled)),
    }  # fmt: skip


def cost(bench: Bench) -> dict[str, Any]:
    """GPU time (the events' own) and wall time that the search spends on a contender and on a loser."""
    problem = bench.task.example
    session = TimingSession(bench.device, bench.task, problem, seed=1)
    green = bench.green(problem)
    spent: dict[str, Any] = {}
    watch, sample = session.watch, session.watch.sample
    state = {"us": 0.0}

    def counted(replays: Any, turns: int, lead: bool = False) -> Any:
        taken = sample(replays, turns, lead)
        state["us"] += sum(float(s.sum()) * r.launches for s, r in zip(taken, replays, strict=True))
        return taken

    watch.sample = counted  # type: ignore[method-assign]
    for label, incumbent in (("contender", None), ("loser", 0.5), ("close_loser", 0.9)):
        times = []
        for _ in range(10):
            state["us"] = 0.0
            base = session.measure(green).median_us if incumbent else None
            state["us"] = 0.0
            session.incumbent_us = base * incumbent if base and incumbent else None
            begin = time.perf_counter()
            timing = session.measure(green)
            wall_ms = (time.perf_counter() - begin) * 1e3
            times.append((state["us"] / 1e3, wall_ms, len(timing.samples_us)))
        gpu_ms, wall_ms, samples = np.median(np.array(times), axis=0)
        spent[label] = {"gpu_ms": gpu_ms, "wall_ms": wall_ms, "samples": samples}
    hopeless = load_template(bench.task, "flash_mma")
    candidate = hopeless.candidate(hopeless.space.default, problem)
    slow = bench.evaluator.gate(candidate, 1, False)
    session.incumbent_us = 1.0
    state["us"] = 0.0
    begin = time.perf_counter()
    timing = session.measure(slow)
    spent["hopeless"] = {"gpu_ms": state["us"] / 1e3, "wall_ms": (time.perf_counter() - begin) * 1e3,
                         "samples": len(timing.samples_us)}  # fmt: skip
    return spent


# ---- new processes


def variants(bench: Bench) -> dict[str, Any]:
    """Baselines with settings at the mission shape: the time of each variant, which one evo chose for its
    rounds and what that took there; and the largest error of each baseline against fp64. With the caches that
    they find (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR)."""
    import torch

    problem, settings = bench.task.example, TimingSettings()
    begin = time.perf_counter()
    contest = Contest(bench.device, bench.task, problem, patient=True)
    rounds = [contest.round("warm", 0, {}).samples_us]
    seconds = time.perf_counter() - begin
    rounds += [contest.round("warm", seed, {}).samples_us for seed in range(1, 10)]
    watch, sets = Stopwatch(bench.device, settings), InputSets(bench.device, bench.task, problem, settings, 9)
    found: dict[str, Any] = {"first_round_seconds": seconds, "skipped": dict(contest.skipped)}
    inputs = bench.task.inputs(problem, "normal", 1, bench.device.torch_device)
    expected = bench.task.reference(problem, inputs)["o"]
    for name, run in contest.baselines.items():
        if name in contest.skipped:
            continue
        with torch.no_grad(), bench.device.alone():
            times = time_variants(watch, sets, run) if isinstance(run, Tunable) else {}
            error = float((run(inputs).double() - expected).abs().max())
        found[name] = {"rounds_us": [float(np.median(samples[name])) for samples in rounds],
                       "largest_error": error}  # fmt: skip
        if isinstance(run, Tunable):
            found[name] |= {"chosen": run.chosen, "variants_us": times}
    kernels = contest.kernels()
    for name, ran in kernels.items():
        found[name]["kernels"] = ran
    return found


def repeatability(database: str, study: str | None, times: int = 5) -> dict[str, Any]:
    """The winner of a study confirmed in new processes."""
    program = "import sys; sys.argv[0]='evo'; from evo.cli import main; sys.exit(main())"
    if study is None:
        database = str(Path(tempfile.mkdtemp()) / "evo.db")

    def evo(*words: str) -> str:
        command = [sys.executable, "-c", program, *words, "--database", database]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    if study is None:
        study = "again"
        evo("search", "--budget", "30s", "--study", study)
    found = []
    for _ in range(times):
        result = json.loads(evo("confirm", study, "--top", "1", "--json"))
        warm = result["finalists"][0]["standings"]["warm"]
        cold = result["finalists"][0]["standings"]["cold"]
        found.append({
            "trial": result["finalists"][0]["number"],
            "median_us": warm["median_us"], "low_us": warm["interval"]["low"],
            "high_us": warm["interval"]["high"], "cold_us": cold["median_us"],
            "versus": warm["versus"], "speedup": warm["speedup"],
            "baselines_us": {n: s["median_us"] for n, s in result["baselines"]["warm"].items()},
            "kernels": result["kernels"], "skipped": result["skipped"],
        })  # fmt: skip
    low, high = found[0]["low_us"] * 0.995, found[0]["high_us"] * 1.005
    inside = sum(low <= f["median_us"] <= high for f in found)
    return {"study": study, "confirmations": found, "inside": inside}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--only", default="empty,cost,agreement,ncu,aa,planted,variants,repeatability")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--study", help="whose winner `repeatability` confirms (default: a search of 30 s)")
    parser.add_argument("--database", default="runs/evo.db", help="where that study is")
    options = parser.parse_args()
    bench = Bench()
    measured: dict[str, Callable[[], Any]] = {
        "empty": lambda: empty_node(bench),
        "cost": lambda: cost(bench),
        "agreement": lambda: agreement(bench),
        "aa": lambda: aa(bench),
        "planted": lambda: planted(bench),
        "ncu": by_ncu,
        "launches": lambda: launches(bench),
        "variants": lambda: variants(bench),
        "repeatability": lambda: repeatability(options.database, options.study),
    }
    known = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    record: dict[str, Any] = known | {
        "gpu": bench.device.name,
        "protocol": "warm L2, graph replays; CONFIRMED's rounds where not said otherwise",
    }
    for name in options.only.split(","):
        begin = time.perf_counter()
        result = measured[name]()
        record[name] = {
            "command": f"python benchmarks/timing_evidence.py --only {name}", "commit": options.commit,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": bench.evaluator.versions, "compiler": bench.evaluator.compiler.version,
            "seconds": round(time.perf_counter() - begin, 1), "result": result,
        }  # fmt: skip
        print(name, json.dumps(result)[:4000], flush=True)
        if options.out:
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
