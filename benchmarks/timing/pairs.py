"""Confirmations in which all finalists and the only baseline are one kernel, by the rule of CONFIRMED.

Rounds, samples, level and verdicts are evo's own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.timing.green import Bench
from evo.confirm import ROUNDS
from evo.confirm.rounds import SAMPLES
from evo.timing.inputs import InputSets
from evo.timing.statistics import LEVEL, standings
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay
from evo.trial import Round

FINALISTS = 5
LAUNCHES_WITH_EXTRA = 72
"""A replay of about 300 µs, as the engine itself chooses."""


class Pairs:
    """Confirmations in which all finalists and the only baseline are one kernel; `extra` is launched at the
    end of each replay of the baseline, and makes it slower."""

    def __init__(self, bench: Bench, extra: Call | None = None) -> None:
        self.bench, self.extra = bench, extra
        self.problem = bench.task.example
        self.green = bench.green(self.problem)

    def confirmation(self, seed: int, rounds: int) -> list[Round]:
        """Rounds of FINALISTS and a baseline, as a confirmation holds them."""
        return [self._round(seed * 1000 + number) for number in range(rounds)]

    def _round(self, seed: int) -> Round:
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
                    launches = LAUNCHES_WITH_EXTRA
                chain = [calls[i % len(calls)] for i in range(launches)]
                if name == "base" and self.extra:
                    chain.append(self.extra)
                replays[name] = Replay(watch.capture(chain, len(chain)).graph, launches)
                held.append(calls)
            order = list(replays)
            rng.shuffle(order)
            samples: dict[str, dict[str, tuple[float, ...]]] = {name: {} for name in replays}
            for on in sets.names:
                sets.fill(on)
                watch.settle()
                watch.sample([replays[name] for name in order], 1)
                taken = watch.sample([replays[name] for name in order], SAMPLES, lead=True)
                for name, own in zip(order, taken, strict=True):
                    samples[name][on] = tuple(map(float, own))
            del spacer
        base = samples.pop("base")
        return Round("warm", seed, samples, {"base": base})


def comparisons_of(bench: Bench, extra: Call | None = None, count: int = 300) -> dict[str, Any]:
    """One kernel against itself, or against itself with extra work."""
    pairs = Pairs(bench, extra)
    names = [f"s/{i}" for i in range(FINALISTS)]
    verdicts, ratios, widths = [], [], []
    inputs: tuple[str, ...] = ()
    for seed in range(count // FINALISTS):
        rounds = pairs.confirmation(seed + 1, ROUNDS["warm"])
        inputs = rounds[0].inputs
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
        "inputs": list(inputs),
        "comparisons": len(verdicts),
        "faster": verdicts.count("faster"),
        "lost": verdicts.count("slower"),
        "median_ratio": float(np.median(ratios)),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "median_interval_width": float(np.median(widths)),
    }
