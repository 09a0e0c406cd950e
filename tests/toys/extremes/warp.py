"""The smallest element of each row with a warp a row."""

from evo.space import Parameter, Space, rule
from evo.trial import BufferArg, LaunchConfig, ScalarArg

NEEDS = "sm_80"
ENTRY = "extremes"


@rule("a step beyond the {problem[C]} columns")
def short_steps(p, limits, problem):
    return 32 * (p.step - 1) < problem["C"]


SPACE = Space(
    (
        Parameter("warps", (1, 2, 4), default=2, meaning="rows a CTA"),
        Parameter("step", (1, 2, 4), default=2, off=1, meaning="elements of a lane in one step"),
    ),
    (short_steps,),
)


def smem_bytes(p, problem):
    return 0


def threads(p, problem):
    return 32 * p.warps


def derived(p, problem):
    return {"element": {"fp16": "__half", "bf16": "__nv_bfloat16"}[problem.dtype]}


def launch(p, problem, gpu):
    return LaunchConfig(
        grid=(-(-problem["R"] // p.warps), 1, 1),
        block=(32 * p.warps, 1, 1),
        smem_bytes=0,
        args=(
            *(BufferArg(name) for name in ("x", "low", "at")),
            ScalarArg(problem["R"], "i32"),
            ScalarArg(problem["C"], "i32"),
        ),
    )


def tiles(p, problem):
    return (p.warps, 32 * p.step)
