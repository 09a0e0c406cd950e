"""The public recorded spaces: which were looked at while the strategies were made, and which never.

    python -m benchmarks.search.public_spaces CLONE FOLDER    # the spaces that were never looked at

CLONE is a clone of https://github.com/schoonhovenrichard/GPU_benchmarking_paper, the data of Schoonhoven,
van Werkhoven and Batenburg, "Benchmarking optimization algorithms for auto-tuning GPU kernels" (2021). It
has each point of a space timed 32 times, a file a time. FOLDER gets a Kernel Tuner cache file for each
space, with the means of the 32. What a trial cost is not recorded there: each counts as one second.

About half of what there is was looked at. The halves are two collections, of other years and GPUs, so that
nothing of the second one could be seen by accident. GEMM, convolution and pnpoly are in both. Of their GPUs
one is in both (TITAN RTX, recorded anew), and the second pnpoly has twice as many points. The hub's
`gemm_milo` and `hotspot_milo` were not at hand.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOOKED_AT = {
    "convolution": ("RTX_2080_Ti", "RTX_3090"),
    "convolution_milo": ("A100", "A4000", "A6000", "A6000_original", "MI250X", "W6600", "W7800"),
    "dedispersion_milo": ("A100", "A4000", "A6000", "MI250X", "W6600", "W7800"),
    "pnpoly": ("RTX_2080_Ti", "RTX_3090"),
    "KernelTuner data/convolution": ("RTX_2080_Ti", "RTX_3060_laptop", "RTX_3090", "RTX_Titan"),
    "KernelTuner data/convolution_milo": ("a4000", "mi50"),
    "KernelTuner data/gemm": ("RTX_2080_Ti", "RTX_3060_laptop", "RTX_3090", "RTX_Titan"),
    "KernelTuner data/pnpoly": ("RTX_2080_Ti", "RTX_3060_laptop", "RTX_3090", "RTX_Titan"),
}
"""By the folder in https://github.com/AutoTuningAssociation/benchmark_hub (`cachefiles/`, or
`currently_unused/cachefiles/`); 31 spaces, and `flash_mma` on an H200 in benchmarks/spaces/."""

NVIDIA = ("A100", "GTX_1080Ti", "GTX_Titan_X", "K20", "P100", "RTX_2070_SUPER", "TITAN_RTX", "V100")
NEVER_LOOKED_AT = {
    "gemm": (
        "A100",
        "GTX_1080Ti",
        "GTX_Titan_X",
        "K20",
        "MI50",
        "P100",
        "RTX_2070_SUPER",
        "TITAN_RTX",
        "V100",
    ),
    "convolution": (
        "A100",
        "GTX_1080Ti",
        "GTX_Titan_X",
        "K20",
        "P100",
        "RTX_2070_SUPER",
        "TITAN_RTX",
        "V100",
    ),
    "pnpoly": ("A100", "GTX_1080Ti", "GTX_Titan_X", "K20", "P100", "RTX_2070_SUPER", "TITAN_RTX", "V100"),
}
"""25 spaces of GPU_benchmarking_paper, by kernel and GPU. Convolution on an MI50 has too few repeats."""

FOLDER = "irace_tune/stochastic_cache_files"
REPEATS = 32


def space_of(clone: Path, kernel: str, gpu: str) -> dict[str, Any]:
    """A space in the format of Kernel Tuner's cache files. A point that failed once counts as failing."""
    name = {"gemm": "GEMM"}.get(kernel, kernel)
    stem = f"{gpu}_{name}" if gpu == "MI50" else f"{name}_{gpu}"
    repeats = [
        content(clone, f"{FOLDER}/{stem}_processed_run{number}.json") for number in range(1, REPEATS + 1)
    ]
    first = repeats[0]
    names = first["tune_params_keys"]
    by_text = {n: {str(value): value for value in first["tune_params"][n]} for n in names}
    cache = {}
    for key in first["cache"]:
        times = [repeat["cache"].get(key, {}).get("time") for repeat in repeats]
        right = all(isinstance(time, float) and time < 1e19 for time in times)
        point = {n: by_text[n][text] for n, text in zip(names, key.split(","), strict=True)}
        time = sum(times) / REPEATS if right else "RuntimeFailedConfig"
        cache[key] = point | {"time": time, "benchmark_time": 1000.0}
    return {"device_name": gpu, "kernel_name": kernel, "tune_params_keys": names, "cache": cache}


def content(clone: Path, path: str) -> dict[str, Any]:
    """A JSON file of the clone's newest commit."""
    shown = subprocess.run(["git", "show", f"HEAD:{path}"], cwd=clone, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def write(clone: Path, folder: Path) -> Iterator[Path]:
    """Writes the spaces that were never looked at, and gives their paths."""
    for kernel, gpus in NEVER_LOOKED_AT.items():
        for gpu in gpus:
            path = folder / f"{kernel}_2021-{gpu}.json.gz"
            path.write_bytes(gzip.compress(json.dumps(space_of(clone, kernel, gpu)).encode(), mtime=0))
            yield path


if __name__ == "__main__":
    for written in write(Path(sys.argv[1]), Path(sys.argv[2])):
        print(written)
