"""By what GPUs of one model differ, and times as another one would have measured them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evo.timing.statistics import median_interval
from evo.trial import InputTime, Interval, Offset, Timing, Trial


def measured_offset(
    gpu: str, reference: str, kernel: str, program: str, times_us: Sequence[tuple[float, float]]
) -> Offset:
    """The offset by turns: the time on `gpu` and that on the `reference`, µs, of each. Its interval is that
    of the median ratio by order statistics; one turn is of a model's estimates, which have no noise."""
    ratios = np.array([own / other for own, other in times_us])
    ratio = float(np.median(ratios))
    near = median_interval(ratios) if len(ratios) > 1 else Interval(ratio, ratio, 1.0)
    return Offset(gpu, reference, kernel, program, len(ratios), ratio, near.low, near.high, near.level)


def on_reference(trial: Trial, offset: Offset) -> Trial:
    """`trial`, measured on the offset's GPU, with the times that its reference would have measured. An
    interval grows by that of the offset; ratios to baselines, timed on the same GPU, stay."""
    timing = trial.timing
    if timing is not None:
        times = {name: _scaled(time, offset) for name, time in timing.times.items()}
        more = {"protocol": timing.protocol, "inputs": timing.inputs, "clocks": timing.clocks}
        timing = Timing.ranked(times, timing.ranking, **more)
    estimate_us = None if trial.estimate_us is None else trial.estimate_us / offset.ratio
    return replace(trial, timing=timing, estimate_us=estimate_us, divisor=offset.ratio)


def _scaled(time: InputTime, offset: Offset) -> InputTime:
    own = time.interval
    return replace(
        time,
        median_us=time.median_us / offset.ratio,
        interval=Interval(own.low / offset.high, own.high / offset.low, min(own.level, offset.level)),
        baselines_us={name: us / offset.ratio for name, us in time.baselines_us.items()},
        samples_us=tuple(us / offset.ratio for us in time.samples_us),
    )
