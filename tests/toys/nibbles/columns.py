"""Sums of codes with a thread a row, which reads what is packed."""

from evo.space import Parameter, Space
from evo.trial import BufferArg, LaunchConfig, ScalarArg

NEEDS = "sm_80"
ENTRY = "columns_of"
SPACE = Space((Parameter("threads", (32, 64, 128), default=64, meaning="rows a CTA"),), ())


def smem_bytes(p, problem):
    return 0


def threads(p, problem):
    return p.threads


def derived(p, problem):
    return {}


def launch(p, problem, gpu):
    return LaunchConfig(
        grid=(-(-problem["rows"] // p.threads), 1, 1),
        block=(p.threads, 1, 1),
        smem_bytes=0,
        args=(
            BufferArg("by_columns"),
            BufferArg("total"),
            ScalarArg(problem["rows"], "i32"),
            ScalarArg(problem["columns"], "i32"),
        ),
    )


def tiles(p, problem):
    return (p.threads,)
