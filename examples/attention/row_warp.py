"""Attention with a warp a query: the smallest template there can be."""

import math

from evo.space import Parameter, Space, rule
from evo.trial import BufferArg, LaunchConfig, ScalarArg

NEEDS = "sm_80"  # the instructions it uses
ENTRY = "row_warp"  # the kernel's name


@rule("more keys at once than the {problem[L]} keys")
def keys_exist(p, limits, problem):
    return p.step <= problem["L"]


SPACE = Space(
    (
        Parameter("warps", (1, 2, 4, 8, 16), default=4, meaning="queries a CTA"),
        Parameter("step", (1, 2, 4, 8), default=4, meaning="keys that are rescaled for together"),
    ),
    (keys_exist,),
)


def supports(problem):
    return None if problem.dtype == "fp16" else "serves fp16 alone"


def smem_bytes(p, problem):
    return 0


def threads(p, problem):
    return 32 * p.warps


def derived(p, problem):
    return {"head_dim": problem["D"], "causal": problem["causal"]}


def launch(p, problem, gpu):
    scale_log2 = math.log2(math.e) / math.sqrt(problem["D"])
    return LaunchConfig(
        grid=(-(-problem["L"] // p.warps), problem["B"] * problem["H"], 1),
        block=(threads(p, problem), 1, 1),
        smem_bytes=smem_bytes(p, problem),
        args=(
            *(BufferArg(name) for name in "qkvo"),
            ScalarArg(problem["L"], "i32"),
            ScalarArg(scale_log2, "f32"),
        ),
    )


def tiles(p, problem):
    return (p.warps, p.step)  # the gate tests lengths around their multiples
