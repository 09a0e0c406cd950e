"""The attention templates against torch's backends, over a table of shapes.

    python benchmarks/attention_rows.py --points benchmarks/attention_points.json --out rows.json
    python benchmarks/attention_rows.py --rows '1,8,512|causal.' --random 200 --rounds 3   searched anew
    python benchmarks/attention_rows.py --show rows.json                                as a Markdown table

For each row: `--random` feasible points a template, the named points and, `--rounds` times, neighbours of the
best so far are compiled on all cores and screened (a graph of launches, median of 5 replays, output compared
with a backend's). The `--finalists` best pass evo's gate and are timed by evo's TimingSession, interleaved
with the best backend; the ratio is that session's, with its 95 % bootstrap interval. Baselines that must be
compiled first (FlexAttention, Triton, flash-attn and FlashInfer where installed) take part in the rows of
`--patient`, for it takes seconds each.

`--points` is JSON: {"row or *": [["name", "template", {changes}], ...]}.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evo.cache import Cache
from evo.compile.nvcc import Compiler, find_compiler
from evo.device import Region
from evo.device.cuda import CudaDevice
from evo.errors import CandidateError, Red
from evo.gate import check
from evo.gpu import Limits, target
from evo.task import Task, load_task
from evo.template import Template, load_template
from evo.timing import TimingSession
from evo.trial import LaunchConfig, Point, Problem, body_of

MMA, RING, SPLIT = "flash_mma", "flash_wgmma", "flash_wgmma_split"
KEPT = 5
"""Screened points of a row that its result names, beside the named ones."""


@dataclass(frozen=True)
class Row:
    """A shape, the templates that may serve it, and what is asked of them: a ratio to a baseline."""

    shape: str
    causal: bool
    target: float
    against: str = "best"
    arch: str = ""
    templates: tuple[str, ...] = (RING, SPLIT, MMA)

    @property
    def name(self) -> str:
        return f"{self.shape}{' causal' if self.causal else ''}{' ' + self.arch if self.arch else ''}"


def table() -> list[Row]:
    both = (False, True)
    rows = [Row("1,8,512,64", causal, 2.6) for causal in both]
    rows += [Row(f"1,8,{n},64", causal, 1.8) for n in (128, 256, 1024, 2048) for causal in both]
    rows += [Row("4,16,512,64", False, 1.2, templates=(RING, SPLIT))]
    long = (RING,)
    rows += [Row("4,16,2048,64", False, 1.05, templates=long)]
    rows += [Row("2,16,4096,64", False, 1.05, templates=long)]
    rows += [Row("1,16,16384,64", causal, t, templates=long) for causal, t in ((False, 1.05), (True, 1.0))]
    rows += [Row("2,16,4096,128", False, 1.0, templates=long)]
    rows += [Row("1,16,16384,128", causal, 1.0, templates=long) for causal in both]
    ada: dict[str, Any] = {"against": "flash", "arch": "sm_89", "templates": (MMA,)}
    rows += [Row(f"1,8,{n},64", causal, 1.3, **ada) for n in (128, 256, 512, 1024, 2048) for causal in both]
    return [*rows, Row("2,16,4096,64", False, 0.95, **ada)]


@dataclass
class Found:
    """A point that was screened."""

    name: str
    template: Template
    point: Point
    us: float
    resources: Any
    origin: str


@dataclass
class Bench:
    """A row on a GPU."""

    device: CudaDevice
    compiler: Compiler
    task: Task
    row: Row
    jobs: int
    seen: set[str] = field(default_factory=set)
    failures: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problem: Problem = self.task.problem(self.row.shape, causal=self.row.causal)
        self.limits = Limits.of(target(self.row.arch)) if self.row.arch else Limits.of(self.device.gpu)
        self.arch = self.device.gpu.arch  # a row of another architecture obeys its limits, but runs here
        self.tensors = dict(self.task.inputs(self.problem, "normal", 0, self.device.torch_device))
        with torch.no_grad():
            self.expected = torch.nn.functional.scaled_dot_product_attention(
                *(self.tensors[x] for x in "qkv"), is_causal=self.row.causal
            )
        self.tensors["o"] = torch.full_like(self.expected, float("nan"))
        sizes = {name: t.numel() * t.element_size() for name, t in self.tensors.items()}
        self.regions = {n: Region(n, t.data_ptr(), sizes[n], n == "o") for n, t in self.tensors.items()}

    def loaded(self, template: Template, point: Point, problem: Problem) -> tuple[Any, LaunchConfig]:
        candidate = template.candidate(point, problem)
        binary = self.compiler.compile(body_of(candidate.source), candidate.entry, self.arch)
        return self.device.load(binary, candidate.launch), candidate.launch

    def screen(self, asked: list[tuple[str, Template, Point, str]]) -> list[Found]:
        fresh, requests = [], []
        for name, template, point, origin in asked:
            key = template.name + json.dumps(dict(point), sort_keys=True)
            if key in self.seen:
                continue
            self.seen.add(key)
            if template.space.why_not(point, self.limits, self.problem):
                continue
            candidate = template.candidate(point, self.problem)
            fresh.append((name, template, point, origin, candidate))
            requests.append((body_of(candidate.source), candidate.entry, self.arch))
        found = []
        for (name, template, point, origin, candidate), binary in zip(
            fresh, self.compiler.compile_many(requests, self.jobs), strict=True
        ):
            try:
                if isinstance(binary, CandidateError):
                    raise binary
                us = self.quick_us(self.device.load(binary, candidate.launch), candidate.launch)
            except CandidateError as error:
                why = f"{error.outcome} {error.reason}"
                self.failures[why] = self.failures.get(why, 0) + 1
                if name:
                    print(f"    {name}: {why} {error.detail[:200]}", flush=True)
                continue
            found.append(Found(name, template, point, us, binary.resources, origin))
        return found

    def quick_us(self, kernel: Any, launch: LaunchConfig) -> float:
        us = self.replayed_us(kernel, launch)
        worst = float((self.tensors["o"].float() - self.expected.float()).abs().max().nan_to_num(9e9))
        if worst > 0.02:
            raise Red("differs from SDPA", f"{worst:.3g}")
        return us

    def replayed_us(self, kernel: Any, launch: LaunchConfig) -> float:
        workspaces = {}
        regions = dict(self.regions)
        for w in launch.workspaces:
            workspaces[w.name] = torch.zeros(w.nbytes, dtype=torch.uint8, device=self.device.torch_device)
            regions[w.name] = Region(w.name, workspaces[w.name].data_ptr(), w.nbytes, True)
        self.tensors["o"].fill_(float("nan"))
        torch.cuda.synchronize()
        return graph_us(lambda: kernel.enqueue(launch, regions, self.device.stream), self.device)

    def judged(self, session: TimingSession, found: Found) -> dict[str, Any]:
        tiles = found.template.tiles(found.point, self.problem)
        green = check(
            partial(self.loaded, found.template, found.point), self.device, self.task, self.problem, tiles,
            seed=1, deterministic=found.template.deterministic,
        )  # fmt: skip
        timing = session.measure(green)
        against = self.row.against
        if against == "best":
            backends = session.baselines_us.keys() - set(patient_names(self.task, self.problem))
            against = min(backends, key=lambda name: session.baselines_us[name])
        assert timing.speedup
        assert timing.speedup_interval
        shift = session.baselines_us[against] / session.baselines_us[session.best_baseline or against]
        worst = max((e.row_error / e.limit for e in green.errors), default=0.0)
        return {
            "template": found.template.name, "changes": changes(found.template, found.point),
            "name": found.name,
            "median_us": timing.median_us, "low_us": timing.interval.low, "high_us": timing.interval.high,
            "tflops": self.task.flop(self.problem) / timing.median_us / 1e6,
            "against": against, "against_us": session.baselines_us[against],
            "ratio": timing.speedup * shift, "ratio_low": timing.speedup_interval.low * shift,
            "ratio_high": timing.speedup_interval.high * shift,
            "registers": found.resources.registers, "spill_bytes": found.resources.spill_bytes,
            "warnings": len(found.resources.warnings), "smem_bytes": green.launch.smem_bytes,
            "gate": {"launches": green.launches, "worst_of_limit": worst},
            "clocks": dict(timing.clocks),
        }  # fmt: skip


def patient_names(task: Task, problem: Problem) -> list[str]:
    """The baselines that must be compiled first."""
    quick = task.baselines(problem)
    return [name for name in task.baselines(problem, patient=True) if name not in quick]


def beside_patient(task: Task) -> Task:
    """The task with all of its baselines."""
    patient = copy.copy(task)

    def baselines(problem: Problem, torch_device: str = "cuda", _patient: bool = False) -> dict[str, Any]:
        torch.compiler.reset()  # a function is compiled eight times at most in a process
        return task.baselines(problem, torch_device, patient=True)

    object.__setattr__(patient, "baselines", baselines)
    return patient


def graph_us(call: Callable[[], Any], device: CudaDevice) -> float:
    """Median µs a call of five replays of a graph."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        call()
        begin.record()
        call()
        call()
        end.record()
        device.synchronize()
        calls = max(1, min(60, int(250 / max(1.0, begin.elapsed_time(end) * 500))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                call()
        samples: list[float] = []
        warm = time.perf_counter() + 3e-3
        while len(samples) < 7:
            begin.record()
            graph.replay()
            end.record()
            stream.synchronize()
            if time.perf_counter() > warm:
                samples.append(begin.elapsed_time(end) * 1e3 / calls)
    return float(statistics.median(samples))


def named_points(given: dict[str, Any], row: Row, templates: dict[str, Template]) -> Iterator[Any]:
    for pattern in ("*", row.name):
        for name, stem, changes in given.get(pattern, ()):
            if stem in row.templates:
                yield name, templates[stem], {**templates[stem].space.default, **changes}, "named"


def build(
    rows: list[Row], templates: dict[str, Template], given: dict[str, Any], task: Task, compiler: Compiler
) -> None:
    """Compiles the named points of all rows at once."""
    requests: dict[tuple[str, str, str], None] = {}
    begin = time.perf_counter()
    for row in rows:
        problem = task.problem(row.shape, causal=row.causal)
        limits = Limits.of(target(row.arch or "sm_90a"))
        for _, template, point, _ in named_points(given, row, templates):
            if template.space.why_not(point, limits, problem) is None:
                for sized in (problem, problem.replace(B=1, H=2, L=1)):  # what is timed, what the gate runs
                    candidate = template.candidate(point, sized)
                    requests[body_of(candidate.source), candidate.entry, "sm_90a"] = None
    compiler.compile_many(list(requests), os.cpu_count() or 1)
    print(f"{len(requests)} sources built in {time.perf_counter() - begin:.1f} s", flush=True)


def work(bench: Bench, templates: dict[str, Template], given: dict[str, Any], args: Any) -> dict[str, Any]:
    row, begin = bench.row, time.perf_counter()
    rng = np.random.default_rng(args.seed)
    asked = list(named_points(given, row, templates))
    for stem in row.templates:
        feasible = templates[stem].space.feasible(bench.limits, bench.problem)
        if not args.random or not len(feasible.indices):
            continue
        asked += [("", templates[stem], feasible.sample(rng), "random") for _ in range(args.random)]
    found = bench.screen(asked)
    for _ in range(args.rounds):
        found.sort(key=lambda f: f.us)
        near = [
            ("", f.template, point, "neighbour")
            for f in found[: args.parents]
            for point in f.template.space.neighbours(f.point)
        ]
        found += bench.screen(near)
    found.sort(key=lambda f: f.us)
    result: dict[str, Any] = {"row": row.name, "target": row.target, "against": row.against,
                              "screened": len(found), "failures": bench.failures}  # fmt: skip
    result["ranking"] = [
        {"us": round(f.us, 3), "template": f.template.name, "name": f.name, "origin": f.origin,
         "changes": changes(f.template, f.point)}
        for i, f in enumerate(found) if i < KEPT or f.name
    ]  # fmt: skip
    result["screen_s"] = time.perf_counter() - begin
    if args.finalists:
        asks = args.patient and any(asked in f"{bench.row.name}." for asked in args.patient.split("|"))
        task = beside_patient(bench.task) if asks else bench.task
        session = TimingSession(bench.device, task, bench.problem, seed=7)
        result["finalists"] = []
        for f in found[: args.finalists]:
            try:
                result["finalists"].append(bench.judged(session, f))
            except CandidateError as error:
                print(
                    f"    {dict(f.point)}: {error.outcome} {error.reason} {error.detail[:300]} {error.where}"
                )
                result.setdefault("red", []).append({"point": dict(f.point), "reason": str(error)})
        result["finalists"].sort(key=lambda f: f["median_us"])
        result["baselines_us"] = dict(session.baselines_us)
        if asks:
            result["patient"] = patient_names(bench.task, bench.problem)
        result["skipped_baselines"] = dict(session.skipped_baselines)
    result["seconds"] = time.perf_counter() - begin
    return result


def told(result: dict[str, Any]) -> str:
    line = f"{result['row']:26} {result['screened']:4} points {result['seconds']:5.1f} s"
    if not result.get("finalists"):
        return line
    best = result["finalists"][0]
    line += f" {best['median_us']:9.2f} us {best['tflops']:6.1f} TFLOP/s, {best['ratio']:.3f} "
    line += f"[{best['ratio_low']:.3f}, {best['ratio_high']:.3f}] of {best['against']} "
    line += f"{best['against_us']:.2f} us (target {result['target']}) {shown(best)}"
    return line


def changes(template: Template, point: Point) -> dict[str, Any]:
    """A point by what differs from its template's default."""
    return {k: v for k, v in point.items() if template.space.default[k] != v}


def shown(found: dict[str, Any]) -> str:
    built = f"r{found['registers']} sp{found['spill_bytes']} w{found['warnings']}"
    return f"{found['template']} {found['name']} {found['changes']} {built}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", help="rows whose name contains this; several with |")
    parser.add_argument(
        "--shapes", default="", help="instead of the table's: B,H,L,D with and without a mask"
    )
    parser.add_argument("--patient", default="", help="rows, named likewise, beside compiled baselines too")
    parser.add_argument("--points", type=Path)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--parents", type=int, default=3)
    parser.add_argument("--finalists", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="no new row after this")
    parser.add_argument("--commit", default="")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "evo")
    parser.add_argument("--build", action="store_true", help="only compile the named points into the cache")
    parser.add_argument("--best", type=int, default=0, help="best screened points to print a row")
    parser.add_argument("--show", type=Path, help="a result to print, instead of measuring")
    parser.add_argument("--out", type=Path, default=Path("attention_rows.json"))
    parser.add_argument("--keep", action="store_true", help="rows of --out that are not measured now stay")
    args = parser.parse_args()
    if args.show:
        print(markdown(json.loads(args.show.read_text())))
        return
    task = load_task("attention")
    templates = {name: load_template(task, name) for name in (MMA, RING, SPLIT)}
    given = json.loads(args.points.read_text()) if args.points else {}
    compiler = find_compiler(None, Cache(args.cache))
    asked = [
        row for row in table() if any(a in f"{row.name}." or a == row.shape for a in args.rows.split("|"))
    ]
    if args.shapes:
        asked = [Row(shape, causal, 1.0) for shape in args.shapes.split("|") for causal in (False, True)]
    build(asked, templates, given, task, compiler)
    if args.build:
        return
    device = CudaDevice(0, compiler)
    kept = rows_of(json.loads(args.out.read_text())) if args.keep and args.out.is_file() else []
    results, begin = [], time.perf_counter()
    for row in asked:
        if time.perf_counter() - begin > args.seconds:
            continue
        bench = Bench(device, compiler, task, row, os.cpu_count() or 1)
        results.append(work(bench, templates, given, args))
        print(told(results[-1]), flush=True)
        for f in results[-1]["ranking"][: args.best]:
            print(f"   {f['us']:9.2f} {f['template']} {f['name']} {f['changes']}")
        torch.cuda.empty_cache()
        found = document(args, compiler, results)
        found["rows"] = beside(kept, rows_of({**found, "rows": results}))
        args.out.write_text(written(found))


def written(found: dict[str, Any]) -> str:
    """As JSON, a row of the table a line."""
    rest = json.dumps({**found, "rows": []}, indent=1)
    rows = ",\n  ".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in found["rows"])
    return rest.replace('"rows": []', f'"rows": [\n  {rows}\n ]') + "\n"


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Its rows, each with what it was measured by."""
    own = {"commit": found["commit"], "date": found["date"], "command": found["command"]}
    return [own | row for row in found["rows"]]


def beside(kept: list[dict[str, Any]], fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of the table, fresh ones instead of those kept."""
    rows = {row["row"]: row for row in (*kept, *fresh)}
    known = [row.name for row in table() if row.name in rows]
    return [rows[name] for name in (*known, *(name for name in rows if name not in known))]


def document(args: Any, compiler: Compiler, results: list[dict[str, Any]]) -> dict[str, Any]:
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    said = subprocess.run(smi, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "command": f"python benchmarks/attention_rows.py --points {args.points} --rows '{args.rows}' "
        f"--patient '{args.patient}' --random {args.random} --rounds {args.rounds} "
        f"--finalists {args.finalists} --seed {args.seed}",
        "commit": args.commit,
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": said.split(",")[0],
        "versions": {"driver": said.split(",")[-1].strip(), "compiler": compiler.version,
                     "torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())},
        "protocol": "warm L2, CUDA graph replays, 4 input sets, interleaved with the best backend; "
        "95 % bootstrap CI",
        "rows": results,
    }  # fmt: skip


MEAN = ("1,8,128,64", "1,8,256,64", "1,8,1024,64", "1,8,2048,64")
"""Shapes, with and without a mask, of whose ratios the geometric mean is asked to be 1.8, and each 1.1."""


def markdown(found: dict[str, Any]) -> str:
    patient = list(dict.fromkeys(name for row in found["rows"] for name in row.get("patient", ())))
    heads = ("shape", "µs", "TFLOP/s", "ratio [95 %]", "of", "asked", *patient)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    logs = []
    for row in found["rows"]:
        best, name = row["finalists"][0], row["row"]
        in_mean = name.removesuffix(" causal") in MEAN
        asked = 1.1 if in_mean else row["target"]
        if in_mean:
            logs.append(math.log(best["ratio"]))
        interval = f"[{best['ratio_low']:.3f}, {best['ratio_high']:.3f}]"
        told = f"{asked}{', geometric mean 1.8' if in_mean else ''}"
        missed = " (missed)" if best["ratio_low"] < asked else ""
        # baselines are timed in turns with each other, ours with the fastest of them: at one clock each time
        times = [row["baselines_us"].get(name) for name in patient]
        beside = [f"{best['ratio'] * time / best['against_us']:.2f}" if time else "" for time in times]
        us, rate = f"{best['median_us']:.2f}", f"{best['tflops']:.0f}"
        cells = (name, us, rate, f"{best['ratio']:.3f} {interval}", best["against"], told + missed, *beside)
        lines.append(f"| {' | '.join(cells)} |")
    if logs:
        lines.append(
            f"\nGeometric mean of the {len(logs)} rows at 128 to 2048: {math.exp(sum(logs) / len(logs)):.3f}."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
