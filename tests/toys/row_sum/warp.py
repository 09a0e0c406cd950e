"""Row sums with a warp a row."""

from evo.space import Parameter, Space
from evo.trial import BufferArg, LaunchConfig, ScalarArg

NEEDS = "sm_80"
ENTRY = "row_sum"
SPACE = Space(
    (
        Parameter("warps", (1, 2, 4, 8), default=4, off=1, meaning="rows a CTA"),
        Parameter("forward", (True, False), default=True, meaning="in which order columns are added"),
    ),
    (),
)


def smem_bytes(p, problem):
    return 0


def threads(p, problem):
    return 32 * p.warps


def derived(p, problem):
    return {"columns": 96}


def launch(p, problem, gpu):
    return LaunchConfig(
        grid=(-(-problem["N"] // p.warps), 1, 1),
        block=(32 * p.warps, 1, 1),
        smem_bytes=0,
        args=(BufferArg("x"), BufferArg("total"), ScalarArg(problem["N"], "i32")),
    )


def tiles(p, problem):
    return (p.warps,)
