"""Times on several timing inputs, in words: which one counts, how far they differ, on how many a kernel was
timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evo.report.words import three_digits
from evo.trial import MEAN, PLAIN, WORST, varies


def counted_text(ranking: str, inputs: Sequence[str]) -> str:
    """Which of the times counts: `worst of normal, sharp`, `on sharp inputs`; `on plain inputs alone` where
    there was no other input."""
    if ranking == PLAIN:
        return "on plain inputs alone"
    if ranking in (WORST, MEAN) and len(inputs) > 1:
        return f"{ranking} of {', '.join(inputs)}"
    names = [ranking] if ranking in inputs else list(inputs)
    return f"on {names[0]} inputs" if names else ""


def spread_text(times: Mapping[str, Any], of: int = 0) -> str:
    """What must be said beside a time: `data-dependent 3.41 to 5.46`, and on how many `of` all inputs a
    kernel was timed that had lost by then; empty where its time is the same on all. `times`: by timing input,
    as a record has them."""
    medians = [time["median_us"] for time in times.values()]
    said = [f"timed on {len(medians)} of {of} inputs"] if 0 < len(medians) < of else []
    if varies(medians):
        said.append(f"data-dependent {three_digits(min(medians))} to {three_digits(max(medians))}")
    return ", ".join(said)


def on_text(on: str, inputs: int) -> str:
    """` on sharp`, behind a ratio; empty where there is no other timing input."""
    return f" on {on}" if on and inputs > 1 else ""
