"""Products that are a stream of weights, beside a plain read of as many bytes: few rows, and 4-bit weights.

For each shape a short search from an empty store among the templates that stream; then its best kernel and
the baselines in turns in one process, by `evo bench`; then a kernel that only reads as many bytes as the
operator must. A set of inputs does not fit the L2 cache together with the three others, so that all of them
read memory. Three shapes with --quick should take two minutes on an H200, all of them nine.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import evo_json
from benchmarks.rows.shapes import count, default_us, rounds, study_of, worst
from evo.task import load_task

PROTOCOL = """evo search of each shape from an empty store; evo bench of its best kernel: graph replays over
four sets of inputs, rounds in turns with every baseline, medians; stream: a kernel that reads as many bytes,
the fastest of some grids, in graph replays over four buffers, the median, right after. `of_stream` is the
part of its bandwidth that the best kernel reaches, `ratio` how many times as long a baseline takes"""
GPU = True
TEMPLATES = {"gemm": ("gemm_skinny", "gemv", "gemm_mma", "gemm_wgmma"), "gemm_w4a16": ("w4a16",)}
SHAPES = (
    "gemm 1,7168,57344,1 fp16", "gemm 1,2112,7168,1 bf16", "gemm_w4a16 1,8192,8192 fp16",
    "gemm 2,7168,57344,1 fp16", "gemm 4,7168,57344,1 fp16", "gemm 8,7168,57344,1 fp16",
    "gemm 16,7168,57344,1 fp16", "gemm_w4a16 1,8192,16384 fp16", "gemm_w4a16 1,7168,20480 fp16",
    "gemm_w4a16 1,8192,81920 fp16", "gemm_w4a16 16,8192,8192 fp16", "gemm_w4a16 64,8192,8192 fp16",
)  # fmt: skip
"""Task, sizes, storage type; with --quick the first QUICK."""
QUICK = 3
PUBLISHED_US = {
    "gemm 1,2112,7168,1 bf16": {"tileops": 11.8, "cublaslt": 14.9},
    "gemm_w4a16 1,8192,8192 fp16": {"marlin": 20.3},
    "gemm_w4a16 1,8192,16384 fp16": {"marlin": 38.1},
    "gemm_w4a16 1,7168,20480 fp16": {"marlin": 40.6},
    "gemm_w4a16 1,8192,81920 fp16": {"marlin": 138.4},
}
"""Times on an H200 that others published (TileOPs' nightly figures): a goal, and no baseline."""
STREAM = """
extern "C" __global__ void __launch_bounds__(512)
stream(const uint4* from, long long count, unsigned* found) {
  const long long stride = gridDim.x * 512LL;
  unsigned bits = 0;
  for (long long i = blockIdx.x * 512LL + threadIdx.x; i < count; i += UNROLL * stride) {
    uint4 words[UNROLL];
    for (int u = 0; u < UNROLL; ++u)
      words[u] = i + u * stride < count ? __ldcs(from + i + u * stride) : uint4{};
    for (int u = 0; u < UNROLL; ++u) bits |= words[u].x ^ words[u].y ^ words[u].z ^ words[u].w;
  }
  if (bits == 0x9e3779b9u) *found = bits;  // hardly ever: but the words must be read
}
"""
SETS = 4


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", default="25s", help="of each search (default: 25s)")
    parser.add_argument("--rounds", type=rounds, default=10, help="of evo bench (default: 10)")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK} shapes, 12 s of search each")
    parser.add_argument(
        "--compiled", action="store_true", help="baselines that are compiled first, too; cublaslt is one"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="SHAPE", help=f"of: {'; '.join(SHAPES)}"
    )


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    for shape in asked.only or SHAPES[: QUICK if asked.quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[shape] = measured(shape, asked, Path(folder) / "evo.db")
            except SystemExit as failed:  # a command's; its own words are on stderr
                found[shape] = {"failed": str(failed)}
        yield {"shapes": found}


def measured(shape: str, asked: argparse.Namespace, database: Path) -> dict[str, Any]:
    """One shape; what could not be had is missing."""
    name, sizes, dtype = shape.split()
    task = load_task(name)
    problem = task.problem(sizes, dtype)
    words = ["--shape", sizes, "--dtype", dtype, "--database", str(database)]
    templates = [word for template in TEMPLATES[name] for word in ("--template", template)]
    budget = "12s" if asked.quick else asked.budget
    best = evo_json("search", name, *words, *templates, "--study", study_of(database), "--budget", budget)[0]
    trial = f"{best['study']}/{best['number']}"
    few = [] if asked.compiled else ["--quick"]
    (sheet,) = evo_json("bench", name, *words, "--trial", trial, "--rounds", str(asked.rounds), *few)
    us = {entrant: worst(standing) for entrant, standing in sheet["standings"].items()}
    own, nbytes = us.pop(trial), task.nbytes(problem)
    read = stream_us(nbytes)
    return {
        "best": {key: best[key] for key in ("template", "point", "median_us", "number")},
        "trials": count(database),
        "default_us": default_us(database, problem),
        "us": own,
        "gbps": nbytes / own / 1e3,
        "stream_us": read,
        "of_stream": read / own,
        "baselines_us": us,
        "ratio": {baseline: other / own for baseline, other in us.items()},
        "published_us": PUBLISHED_US.get(shape, {}),
        "absent": sheet["absent"],
        "bytes": nbytes,
    }


def stream_us(nbytes: int) -> float:
    """Median of a kernel that reads `nbytes`, the fastest of some grids, over SETS buffers in turn."""
    import torch

    from evo.cache import Cache, default_folder
    from evo.compile import find_compiler
    from evo.device import Region
    from evo.device.cuda import CudaDevice
    from evo.timing.stopwatch import Call, Stopwatch, TimingSettings, launches_per_replay
    from evo.trial import BufferArg, LaunchConfig, ScalarArg

    device, settings = CudaDevice(), TimingSettings()
    buffers = [torch.zeros(nbytes, dtype=torch.uint8, device=device.torch_device) for _ in range(SETS)]
    found = torch.zeros(4, dtype=torch.uint8, device=device.torch_device)
    args = (BufferArg("from"), ScalarArg(nbytes // 16, "i64"), BufferArg("found"))
    times: list[float] = []
    with find_compiler(None, Cache(default_folder())) as compiler, torch.no_grad(), device.alone():
        watch = Stopwatch(device, settings)
        for unroll, ctas in ((4, 4), (8, 2), (4, 16), (8, 8)):
            launch = LaunchConfig((ctas * device.gpu.sms, 1, 1), (512, 1, 1), 0, args)
            source = STREAM.replace("UNROLL", str(unroll))
            kernel = device.load(compiler.compile(source, "stream", device.gpu.arch), launch)
            regions = [
                {
                    "from": Region("from", buffer.data_ptr(), nbytes, writable=False),
                    "found": Region("found", found.data_ptr(), 4, writable=True),
                }
                for buffer in buffers
            ]
            calls: list[Call] = [_started(kernel, launch, region) for region in regions]
            times.append(_median_us(watch, calls, launches_per_replay(watch.estimate(calls), settings)))
    del buffers
    torch.cuda.empty_cache()
    return min(times)


def _started(kernel: Any, launch: Any, regions: Any) -> Any:
    return lambda: kernel.start(launch, regions)


def _median_us(watch: Any, calls: Any, launches: int) -> float:
    import numpy as np

    replay = watch.capture(calls, launches)
    watch.settle()
    watch.sample([replay], 5)
    (samples,) = watch.sample([replay], 20)
    return float(np.median(samples))
