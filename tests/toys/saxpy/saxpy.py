from evo.template import template

TEMPLATE = template(
    tune_params={"block_size_x": [64, 128, 256, 512], "per_thread": [1, 2, 4]},
    grid="ceil(N / (block_size_x * per_thread))",
)
