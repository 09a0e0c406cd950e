"""How scan.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={"block_size_x": [128, 32, 64, 256], "per_thread": [4, 1, 2, 8], "by_warp": [1, 0]},
    meanings={"by_warp": "warps add by shuffles; else the CTA adds in shared memory"},
    grid="rows",
)
