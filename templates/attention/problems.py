"""The named sets of problems of attention: what `--shape` and `--shapes` take by name."""

from __future__ import annotations

from collections.abc import Mapping

from evo.trial import Problem


def _problem(b: int, h: int, length: int, d: int, *, causal: bool = False) -> Problem:
    return Problem("attention", {"B": b, "H": h, "L": length, "D": d}, "fp16", {"causal": causal})


PROBLEMS: Mapping[str, tuple[Problem, ...]] = {
    "mission": (_problem(1, 8, 512, 64),),
    "seeds": tuple(
        _problem(1, 8, length, 64, causal=causal)
        for length in (128, 256, 512, 1024, 2048)
        for causal in (False, True)
    ),
    "prefill": (
        _problem(4, 16, 512, 64),
        _problem(4, 16, 2048, 64),
        _problem(2, 16, 4096, 64),
        _problem(1, 16, 16384, 64),
        _problem(1, 16, 16384, 64, causal=True),
        _problem(8, 16, 1024, 128),
        _problem(2, 16, 4096, 128),
        _problem(1, 32, 8192, 128),
        _problem(1, 16, 16384, 128),
    ),
}
"""The first is what is searched where none is named."""
