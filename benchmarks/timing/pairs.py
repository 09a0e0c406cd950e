"""Confirmations in which all finalists and the only baseline are one kernel, by the rule of CONFIRMED.

Rounds, samples, level and verdicts are evo's own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.timing.green import Bench
from evo.confirm import ROUNDS
from evo.confirm.rounds import SAMPLES
from evo.timing.inputs import InputSets
from evo.timing.statistics import LEVEL, standings
from evo.timing.stopwatch import Call, Replay, Stopwatch, TimingSettings, launches_per_replay
from evo.trial import Round, Standing

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


def comparisons_of(bench: Bench, extra: Call | None = None, count: int = 300) -> Iterator[dict[str, Any]]:
    """One kernel against itself, or against itself with extra work: the score after each confirmation."""
    pairs = Pairs(bench, extra)
    names = [f"s/{i}" for i in range(FINALISTS)]
    found: list[Standing] = []
    for seed in range(count // FINALISTS):
        rounds = pairs.confirmation(seed + 1, ROUNDS["warm"])
        every = standings(rounds, names, ["base"])
        found += [every[name] for name in names]
        yield {
            "rounds": ROUNDS["warm"],
            "samples": SAMPLES,
            "level": LEVEL,
            "inputs": list(rounds[0].inputs),
            **score(found),
        }


def score(found: Sequence[Standing]) -> dict[str, Any]:
    """How often the finalist was faster or slower, and how far the ratios lie apart."""
    verdicts = [standing.verdict for standing in found]
    ratios = [standing.speedup for standing in found if standing.speedup is not None]
    intervals = [one.speedup_interval for one in found if one.speedup_interval is not None]
    assert len(ratios) == len(intervals) == len(found)
    return {
        "comparisons": len(found),
        "faster": verdicts.count("faster"),
        "lost": verdicts.count("slower"),
        "median_ratio": float(np.median(ratios)),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "median_interval_width": float(np.median([one.high - one.low for one in intervals])),
    }
