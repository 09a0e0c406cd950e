"""A row a CTA."""

from evo.template import template

ELEMENTS = {"fp16": "__half", "fp32": "float"}
TEMPLATE = template(
    tune_params={"threads": [64, 128, 256]},
    meanings={"threads": "threads of a CTA, which has one row"},
    grid="T",
    block="threads",
    derived=lambda _, problem: {"element": ELEMENTS[problem.dtype], "epsilon": "1e-5f"},
)
