"""Where the time of the ring kernel goes: variants of its source that leave a step out, timed beside it.

    python benchmarks/attention_parts.py --out parts.json      a GPU; --dry compiles only

Variants compute something else, and nothing of them is checked; their times say what a step costs where it
stands. Two that each take half of the time, and both together all of it, run one after the other; two that
each take all of it run beside each other.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from attention_rows import Bench, Row

from evo.cache import Cache
from evo.compile.nvcc import find_compiler
from evo.device.cuda import CudaDevice
from evo.errors import CandidateError
from evo.gpu import Limits, target
from evo.task import load_task
from evo.template import load_template
from evo.trial import body_of

EXPONENTIALS = ("scores[j][e] = polynomial ? exp2_poly(x) : ex2(x);", "scores[j][e] = x;")
MAXIMA = (
    "        raise(grown, scores);\n        const bool rescale = follow(grown, factor, scale);",
    "        const bool rescale = false;\n        factor[0] = factor[1] = maximum[0] = maximum[1] = 1.f;",
)
SUMS = ("            sum[e / 2] += scores[j][e];", "")
SOFTMAX = (
    "        return softmax.template update<kPolynomials>(scores[0], factor, args.scale_log2);",
    "        factor[0] = factor[1] = 1.f;\n        return false;",
)
P_V = (
    "        multiply_values_async<Element, kD, kBN>(out, p, shared_address(&shared.v[values.stage]), true);",
    '        pin(out);\n        asm volatile("" ::"r"(p[0][0]), "r"(p[1][1]), "r"(p[2][2]), "r"(p[3][3]));',
)
Q_K = (
    "        multiply_keys_async<Element, kD, kBN>(scores[0], shared_address(&shared.q[row_group]),\n"
    "                                              shared_address(&shared.k[at.stage]));",
    "",
)
WITHOUT = {
    "nothing": (), "exponentials": (EXPONENTIALS,), "maxima": (MAXIMA,), "sums": (SUMS,),
    "maxima, sums": (MAXIMA, SUMS), "exponentials, maxima, sums": (EXPONENTIALS, MAXIMA, SUMS),
    "P V": (P_V,), "Q K": (Q_K,), "P V, Q K": (P_V, Q_K), "softmax": (SOFTMAX,),
    "softmax, Q K": (SOFTMAX, Q_K), "softmax, P V": (SOFTMAX, P_V),
}  # fmt: skip
POINTS: list[tuple[str, dict[str, Any]]] = [
    (
        "1,8,2048,64",
        {"row_groups": 2, "key_groups": 2, "bn": 64, "stages": 4, "overlap": "turns", "epilogue": "wide"},
    ),
    ("2,16,4096,64", {"row_groups": 4, "bn": 64, "stages": 3, "overlap": "turns", "epilogue": "tma"}),
    ("2,16,4096,64", {"row_groups": 4, "bn": 64, "stages": 3, "overlap": "values", "epilogue": "tma"}),
]


def without(source: str, steps: tuple[tuple[str, str], ...]) -> str:
    for there, instead in steps:
        if there not in source:
            raise SystemExit(f"the template no longer says {there!r}")
        source = source.replace(there, instead)
    return source


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "evo")
    parser.add_argument("--commit", default="")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("parts.json"))
    args = parser.parse_args()
    compiler, task = find_compiler(None, Cache(args.cache)), load_task("attention")
    template = load_template(task, "flash_wgmma")
    device = None if args.dry else CudaDevice(0, compiler)
    found: dict[str, Any] = {
        "command": "python benchmarks/attention_parts.py", "commit": args.commit,
        "date": datetime.now(UTC).date().isoformat(), "gpu": device.name if device else "",
        "versions": {"compiler": compiler.version, "torch": torch.__version__},
        "protocol": "warm L2, median of 7 replays of a CUDA graph; results unchecked", "points": [],
    }  # fmt: skip
    for shape, changes in POINTS:
        problem, point = task.problem(shape), {**template.space.default, **changes}
        assert template.space.why_not(point, Limits.of(target("sm_90a")), problem) is None
        candidate = template.candidate(point, problem)
        sources = [without(body_of(candidate.source), steps) for steps in WITHOUT.values()]
        requests = [(source, candidate.entry, "sm_90a") for source in sources]
        binaries = compiler.compile_many(requests, os.cpu_count() or 1)
        times: dict[str, float] = {}
        for name, binary in zip(WITHOUT, binaries, strict=True):
            if isinstance(binary, CandidateError):
                raise binary
            if device is not None:
                bench = Bench(device, compiler, task, Row(shape, False, 1.0), os.cpu_count() or 1)
                times[name] = bench.replayed_us(device.load(binary, candidate.launch), candidate.launch)
                print(f"{shape} {changes['overlap']:7} without {name:28} {times[name]:9.2f} us", flush=True)
        found["points"].append({"shape": shape, "changes": changes, "us_without": times})
    if device is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
