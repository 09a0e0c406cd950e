"""How stencil.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={
        "block_size_x": [32, 16, 64],
        "block_size_y": [4, 2, 8],
        "planes": [4, 1, 8],
        "in_shared": [1, 0],
    },
    meanings={"planes": "planes of a CTA, one after the other", "in_shared": "a plane in shared memory"},
    grid=["ceil(width / block_size_x)", "ceil(height / block_size_y)", "ceil(depth / planes)"],
)
