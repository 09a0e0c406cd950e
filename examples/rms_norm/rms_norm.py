"""How rms_norm.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={"threads": [128, 32, 64, 256], "rows_a_cta": [1, 2, 4], "kept": [0, 1]},
    meanings={"threads": "threads a row", "rows_a_cta": "rows a CTA", "kept": "rows stay in shared memory"},
    grid="ceil(rows / rows_a_cta)",
    block=["threads", "rows_a_cta"],
    smem_bytes="4 * columns * rows_a_cta * kept",
    derived=lambda _, problem: {"element": {"fp16": "__half", "fp32": "float"}[problem.dtype]},
)
