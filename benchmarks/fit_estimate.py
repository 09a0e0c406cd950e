"""Fit the constants of the emulator's estimate to measured kernels, and say how well it orders others.

    python benchmarks/estimate_rank.py runs/evo.db --study mission --out mission.json    # for each study
    python benchmarks/fit_estimate.py mission.json ada99.json --out estimate.json

Takes the pairs that estimate_rank.py writes (measured time, counters, resources, launch); needs scipy. Least
squares of log time, each template with the same weight, each constant held to its present value by a weak
prior. Prints the constants fitted to all studies, and rank correlations: of the package as it is, fitted to
all, and held out (fitted to the first study and judged on each other one; fitted to every second trial of the
first and judged on the rest; the prior has seen all of them, which moved these by less than 0.01).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
import numpy.typing as npt
from estimate_rank import judged, spearman
from scipy.optimize import least_squares

from evo.device.emulator import estimate as model
from evo.gpu import KNOWN_GPUS, Gpu
from evo.trial import LaunchConfig, Resources

Floats = npt.NDArray[np.float64]
HELD = ("inst_fp16", "inst_fp64", "inst_move", "inst_predicate", "inst_control", "inst_load_local",
        "inst_load_const", "inst_atomic", "inst_async_copy", "inst_special")  # fmt: skip
"""Classes that attention has few of: kept as they are."""
PRIOR = 0.02
CHAIN, PIPES = list(model.CHAIN_CYCLES), [name for name in model.PIPE_FACTORS if name != "fp64"]
NAMES = [*CHAIN, *PIPES, "cluster 2", "cluster 4", "cluster 8", "fill", "copy"]


@dataclass(frozen=True)
class Trials:
    """Of each trial what the model is linear in. Shapes: (trials, ...)."""

    chain: Floats
    pipes: Floats
    added: Floats
    """What each of the last five constants is multiplied with: 0 or 1 a cluster size, bytes, µs."""
    launch_us: float
    mhz: float
    measured: Floats
    template: npt.NDArray[np.str_]

    def some(self, which: npt.NDArray[np.bool_]) -> Trials:
        return Trials(
            self.chain[which], self.pipes[which], self.added[which], self.launch_us, self.mhz,
            self.measured[which], self.template[which],
        )  # fmt: skip


def trials_of(pairs: list[dict[str, Any]], gpu: Gpu) -> Trials:
    chain, pipes, added = [], [], []
    for pair in pairs:
        resources = Resources(**{**pair["resources"], "warnings": ()})
        launch, counters = LaunchConfig.from_json(json.dumps(pair["launch"])), pair["counters"]
        cta = {name: value / counters["ctas"] for name, value in counters.items()}
        smem = launch.smem_bytes + resources.static_smem_bytes
        fitting = max(1, gpu.ctas_resident(launch.threads, resources.registers, smem))
        busiest = math.ceil(counters["ctas"] / gpu.sms)
        resident, warps = min(fitting, busiest), math.ceil(launch.threads / 32)
        chain.append([cta.get(name, 0.0) / warps * math.ceil(busiest / fitting) for name in CHAIN])
        cycles = model._pipe_cycles(cta, launch, resources, gpu)
        pipes.append([cycles[name] * busiest for name in PIPES])
        ctas = math.prod(launch.cluster)
        copy_us = cta.get("async_copy_bytes", 0.0) * resident / 64 / (gpu.clock_ghz * 1e3)
        added.append([ctas >= 2, ctas >= 4, ctas >= 8, resident * smem, copy_us])
    return Trials(
        np.array(chain, float), np.array(pipes, float), np.array(added, float), gpu.launch_us,
        gpu.clock_ghz * 1e3, np.array([p["measured_us"] for p in pairs]),
        np.array([p["template"] for p in pairs]),
    )  # fmt: skip


def estimated(constants: Floats, trials: Trials) -> Floats:
    """µs of each trial; `constants` in the order of NAMES."""
    chain = trials.chain @ constants[: len(CHAIN)]
    pipes = trials.pipes * constants[len(CHAIN) : -5]
    joined = ((pipes**model.NORM).sum(axis=1) + chain**model.NORM) ** (1 / model.NORM)
    return np.asarray(trials.launch_us + trials.added @ constants[-5:] + joined / trials.mhz)


def fitted(trials: Trials) -> Floats:
    now = np.array([
        *model.CHAIN_CYCLES.values(), *(model.PIPE_FACTORS[name] for name in PIPES),
        *(us for _, us in model.CLUSTER_US), model.FILL_US_A_BYTE, model.COPY_SHARE,
    ])  # fmt: skip
    free = np.array([name not in HELD for name in NAMES])
    sizes = {name: int((trials.template == name).sum()) for name in set(trials.template)}
    weight = np.array([1 / math.sqrt(sizes[name]) for name in trials.template])
    weight *= math.sqrt(len(weight) / len(sizes)) / 10

    def whole(logs: Floats) -> Floats:
        constants = now.copy()
        constants[free] = np.exp(logs)
        return constants

    def misses(logs: Floats) -> Floats:
        off = weight * np.log(estimated(whole(logs), trials) / trials.measured)
        return np.concatenate([off, PRIOR * (logs - np.log(now[free]))])

    return whole(least_squares(misses, np.log(now[free]), loss="soft_l1", f_scale=0.3, max_nfev=200).x)


def ordered(constants: Floats, trials: Trials) -> dict[str, float]:
    """Spearman over all trials and within each template."""
    told = estimated(constants, trials)
    rows = {"all": np.ones(len(told), bool)} | {n: trials.template == n for n in sorted(set(trials.template))}
    return {name: round(spearman(trials.measured[i], told[i]), 3) for name, i in rows.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", type=Path, nargs="+", help="JSON files of estimate_rank.py, one a study")
    parser.add_argument("--gpu", default="H200", help="the GPU that was measured")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    options = parser.parse_args()
    gpu = KNOWN_GPUS[options.gpu]
    pairs = {path.stem: json.loads(path.read_text()) for path in options.pairs}
    studies = {name: trials_of(found, gpu) for name, found in pairs.items()}
    first, *others = studies.values()
    everything = trials_of([pair for found in pairs.values() for pair in found], gpu)
    constants, of_first = fitted(everything), fitted(first)
    second = np.arange(len(first.measured)) % 2 == 0
    result = {
        "as the package is": {name: judged(found, gpu) for name, found in pairs.items()},
        "fitted to all": {name: ordered(constants, trials) for name, trials in studies.items()},
        "fitted to the first, judged on": {
            name: ordered(of_first, trials) for name, trials in zip([*studies][1:], others, strict=True)
        },
        "fitted to half of the first, judged on its rest": ordered(
            fitted(first.some(second)), first.some(~second)
        ),
        "constants": {name: float(f"{value:.3g}") for name, value in zip(NAMES, constants, strict=True)},
    }
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
