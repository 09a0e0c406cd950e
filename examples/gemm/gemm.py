"""How gemm.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={
        "tile_m": [32, 16, 64],
        "tile_n": [32, 16, 64],
        "tile_k": [16, 8, 32],
        "each_m": [2, 1, 4],
        "each_n": [2, 1, 4],
    },
    restrictions=["32 <= tile_m * tile_n / (each_m * each_n) <= 1024"],
    grid=["ceil(n / tile_n)", "ceil(m / tile_m)"],
    block=["tile_n // each_n", "tile_m // each_m"],
)
