"""How reduce.cu is tuned and launched."""

from evo.template import template

CTAS = "ceil(n / (block_size_x * per_thread))"
TEMPLATE = template(
    tune_params={"block_size_x": [128, 64, 256, 512], "per_thread": [16, 4, 64], "chains": [1, 4]},
    meanings={"chains": "sums that a thread has, added in the end"},
    grid=CTAS,
    args=["x", "total", "largest", "n", "sums", "tops", "ticket"],
    workspaces={"sums": f"4 * {CTAS}", "tops": f"4 * {CTAS}", "ticket": 4},
    zeroed=["ticket"],
)
