"""Scaling in place with a few elements a thread."""

from evo.space import Parameter, Space
from evo.trial import BufferArg, LaunchConfig, ScalarArg

NEEDS = "sm_80"
ENTRY = "scale"
SPACE = Space(
    (
        Parameter("block", (32, 64, 128), default=64, meaning="threads a CTA"),
        Parameter("each", (1, 2, 4), default=2, off=1, meaning="elements a thread"),
    ),
    (),
)


def smem_bytes(p, problem):
    return 0


def threads(p, problem):
    return p.block


def derived(p, problem):
    return {"element": {"fp16": "__half", "fp32": "float"}[problem.dtype]}


def launch(p, problem, gpu):
    sign = -1.0 if problem["negate"] else 1.0
    return LaunchConfig(
        grid=(-(-problem["N"] // (p.block * p.each)), 1, 1),
        block=(p.block, 1, 1),
        smem_bytes=0,
        args=(
            BufferArg("x"),
            ScalarArg(problem["N"], "i32"),
            ScalarArg(sign * 1.5, "f32"),
            ScalarArg(sign * problem["bias"], "f32"),
        ),
    )


def tiles(p, problem):
    return (p.block, p.block * p.each)
