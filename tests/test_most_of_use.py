"""Values that are more than a problem has a use for: `most` of a parameter, stages of `gemm_wgmma`."""

from __future__ import annotations

import numpy as np
import pytest

from evo.gpu import Limits, target
from evo.space import Parameter, Space, rule
from evo.task import load_task
from evo.template import load_template
from evo.trial import Problem, Value, body_of

GEMM = load_task("gemm")
LIMITS = Limits.of(target("sm_90a"))
WGMMA = load_template(GEMM, "gemm_wgmma")


@rule("more than 256 bytes")
def fits(p: object, _limits: Limits, _problem: Problem) -> object:
    return p.stages * p.bytes <= 256  # type: ignore[attr-defined]


SPACE = Space(
    (
        Parameter("bytes", (32, 64), 32),
        Parameter("stages", (1, 2, 4, 8), 2, most=lambda p, problem, _gpu: problem["K"] // p.bytes),
    ),
    (fits,),
)


def test_a_value_above_it_counts_as_it() -> None:
    small, large = GEMM.problem("64,64,64,1"), GEMM.problem("64,64,1024,1")
    point = {"bytes": 32, "stages": 8}
    filled = SPACE.filling(point, small, LIMITS.gpu)
    assert filled == {"bytes": 32, "stages": 2}
    assert SPACE.filling(point, large, LIMITS.gpu) == point
    assert SPACE.filling(filled, large, LIMITS.gpu) == filled, "a kernel keeps what it was made with"
    rows = np.array([[0, 0], [0, 3], [1, 3]])
    assert SPACE.columns(rows, small, LIMITS.gpu).stages.tolist() == [1, 2, 1]
    wide = {"bytes": 64, "stages": 8}
    assert SPACE.why_not(wide, LIMITS, small) is None
    assert SPACE.why_not(wide, LIMITS, large) == "more than 256 bytes"


@pytest.mark.parametrize(
    ("shape", "changes", "stages"),
    [
        ("4096,4096,64,1", {}, 2),
        ("4096,4096,192,1", {}, 3),
        ("4096,4096,192,1", {"bk": 128}, 2),
        ("4096,4096,192,1", {"in_flight": 2, "bk": 128}, 3),
        ("4096,4096,1024,1", {}, 8),
        ("4096,4096,64,1", {"consumers": 2, "persistent": True}, 8),
        ("64,64,256,1", {"splits": 2}, 8),
    ],
)
def test_a_tile_has_no_more_stages_than_steps(shape: str, changes: dict[str, Value], stages: int) -> None:
    """Where tiles follow each other the next one's are copied ahead, and parts of K may join through them."""
    problem = GEMM.problem(shape)
    point = {**WGMMA.space.default, "splits": 1, "bn": 32, "stages": 8, **changes}
    assert WGMMA.space.why_not(point, LIMITS, problem) in (None, "splits=auto is the same kernel")
    candidate = WGMMA.candidate(point, problem)
    assert f"kStages = {stages};" in candidate.source
    for other in ("33,40,64,1", "128,128,1024,1"):
        body, launch = WGMMA.sibling_launch(candidate, GEMM.problem(other))
        assert body == body_of(candidate.source)
        assert launch.smem_bytes == candidate.launch.smem_bytes
