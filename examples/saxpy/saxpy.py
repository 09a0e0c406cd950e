"""How saxpy.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={"block_size_x": [128, 64, 256, 512], "per_thread": [1, 2, 4], "vector": [4, 1, 2]},
    grid="ceil(n / (block_size_x * per_thread * vector))",
)
