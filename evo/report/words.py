"""How numbers, times, points and kernels are written. An estimate is written `~8.5 µs`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from evo.device.emulator.fitted import is_fitted, rank_correlation
from evo.report.terminal import for_terminal
from evo.trial import Point, Value

SHOWN_KERNELS = 3
"""A person sees so many kernels of a baseline."""
KERNEL_NAME_WIDTH = 60
"""A person sees so many characters of a kernel's name: names of C++ templates are long."""


def microseconds(value: float) -> str:
    """`8.53 µs`, `292 µs`, `4.11 ms`: three digits."""
    return f"{three_digits(value / 1000)} ms" if value >= 10_000 else f"{three_digits(value)} µs"


def three_digits(value: float) -> str:
    """A positive number with three digits that count: 0.512, 8.53, 72.5, 290, 4114."""
    decimals = 3 if value < 0.9995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"


def duration(seconds: float) -> str:
    """`45 s`, `1 min 05 s`, `13 h 42 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def intensity_text(flop_a_byte: float) -> str:
    """`256 FLOP a byte`, `0.167 FLOP a byte`."""
    return f"{f'{flop_a_byte:.0f}' if flop_a_byte >= 10 else f'{flop_a_byte:.3g}'} FLOP a byte"


def several(count: int, noun: str) -> str:
    """`1 trial`, `0 trials`, `1,512 trials`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def memory_text(nbytes: int) -> str:
    """Shared memory, in bytes where it is no whole number of KB: "48 KB", "48 bytes"."""
    return f"{nbytes} bytes" if nbytes % 1024 else f"{nbytes // 1024} KB"


def dollars(seconds: float, rate: float) -> str:
    """What `seconds` cost at `rate` dollars an hour."""
    return f"${seconds / 3600 * rate:.2f}"


def plain(value: Value) -> str:
    """A parameter's value; booleans as 0 and 1."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def point_text(point: Point) -> str:
    """`bm=64 bn=128 swizzle=xor`."""
    text = " ".join(f"{name}={plain(value)}" for name, value in point.items())
    return for_terminal(text, lines=False)


def score_text(median_us: float | None, estimate_us: float | None) -> str:
    """A measured time, or an estimate marked as one, or a dash."""
    if median_us is not None:
        return microseconds(median_us)
    return f"~{microseconds(estimate_us)}" if estimate_us is not None else "-"


def an_estimate(problem: str, template: str) -> str:
    """What the emulator's time of a template's kernel is called; `problem` is a problem's key."""
    return "an estimate" if is_fitted(problem.split(maxsplit=1)[0], template) else "a guess"


def estimates(problem: str, templates: Iterable[str]) -> str:
    """What the emulator's times of kernels of those templates are called, together."""
    known = all(is_fitted(problem.split(maxsplit=1)[0], template) for template in templates)
    return "estimates" if known else "guesses"


def trust_text(problem: str, templates: Iterable[str]) -> str:
    """How well the emulator's times order the kernels of each of those templates."""
    task = problem.split(maxsplit=1)[0]
    found = {name: rank_correlation(task, name) for name in dict.fromkeys(templates)}
    known = [f"{name} {value:.2f}" for name, value in found.items() if value is not None]
    if not known:
        return "how well they order kernels was never measured"
    unknown = ", not known of the others" if len(known) < len(found) else ""
    return f"rank correlation with measured times: {', '.join(known)}{unknown}"


def kernels_text(names: Sequence[str]) -> str:
    """The first kernels of one baseline, without namespaces and template arguments."""
    short = list(dict.fromkeys(_bare(name) for name in names if not name.startswith(("Memset", "Memcpy"))))
    more = f" and {len(short) - SHOWN_KERNELS} more" if len(short) > SHOWN_KERNELS else ""
    return ", ".join(short[:SHOWN_KERNELS]) + more


def _bare(name: str) -> str:
    if tuned := re.search(r" (\[[^\[\]]*=[^\[\]]*\])$", name):  # what a baseline chose for itself
        return f"{_bare(name[: tuned.start()])} {tuned[1]}"
    name = re.split(r"[<(]", name.replace("(anonymous namespace)", ""))[0].strip()
    name = name.removeprefix("void ").rsplit("::", 1)[-1]
    return name if len(name) <= KERNEL_NAME_WIDTH else name[: KERNEL_NAME_WIDTH - 2] + " …"


def share_text(share: float) -> str:
    """How much of a problem ran: `whole`, `38 %`, `0.4 %`."""
    return "whole" if share >= 1 else f"{100 * share:.2g} %"


def cases_text(run: int | None, planned: int | None) -> str:
    """`61/212`, or a dash where it is not known."""
    return "-" if run is None or planned is None else f"{run}/{planned}"


def ratio_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """`1.08x [1.07, 1.09]`: above 1 is faster than the baseline."""
    if ratio is None:
        return "-"
    return f"{ratio:.2f}x" if low is None or high is None else f"{ratio:.2f}x [{low:.2f}, {high:.2f}]"


def interval_text(low: float | None, high: float | None) -> str:
    """`[8.51, 8.55]`, or a dash."""
    return "-" if low is None or high is None else f"[{three_digits(low)}, {three_digits(high)}]"


def count(number: int | None) -> str:
    """A number, or a dash."""
    return "-" if number is None else str(number)
