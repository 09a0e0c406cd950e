"""How transpose.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={"tile": [32, 16, 64], "block_size_y": [8, 2, 4, 16], "pad": [1, 0]},
    meanings={"tile": "rows and columns of a CTA", "pad": "elements after each row in shared memory"},
    grid=["ceil(columns / tile)", "ceil(rows / tile)"],
    block=["tile", "block_size_y"],
    derived=lambda _, problem: {"element": {"fp16": "__half", "fp32": "float"}[problem.dtype]},
)
