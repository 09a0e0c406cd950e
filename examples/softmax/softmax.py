"""How softmax.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={"warps": [4, 1, 2, 8], "online": [0, 1], "unroll": [1, 2, 4]},
    meanings={"warps": "warps a row", "online": "maximum and sum in one pass over the row"},
    grid="rows",
    block="32 * warps",
    derived=lambda _, problem: {"element": {"fp16": "__half", "fp32": "float"}[problem.dtype]},
)
