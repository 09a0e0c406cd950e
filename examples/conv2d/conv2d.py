"""How conv2d.cu is tuned and launched."""

from evo.template import template

TEMPLATE = template(
    tune_params={
        "block_size_x": [32, 16],
        "block_size_y": [8, 4, 16],
        "per_thread": [2, 1, 4],
        "in_shared": [1, 0],
    },
    meanings={"per_thread": "rows of a thread", "in_shared": "the CTA's part of the image in shared memory"},
    restrictions=["taps % 2 == 1"],
    grid=["ceil(width / block_size_x)", "ceil(height / (block_size_y * per_thread))"],
    args=["image", "weight", "y", "height", "width"],
    derived={"taps": "taps"},
)
