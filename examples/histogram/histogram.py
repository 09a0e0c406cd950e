"""How histogram.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={"block_size_x": [128, 64, 256, 512], "per_thread": [16, 4, 64], "copies": [1, 2, 4]},
    meanings={"copies": "histograms of a CTA in shared memory, for fewer conflicts"},
    grid="ceil(n / (block_size_x * per_thread))",
    smem_bytes="4 * bins * copies",
)
