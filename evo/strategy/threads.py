"""NumPy's threads while a strategy thinks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Within it NumPy's linear algebra runs on one thread. Its matrices are small here: threads would wait
    for each other, many times longer while compilers have the other cores; and one thread rounds alike
    wherever a search is resumed."""
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> ThreadpoolController:
    """Finds the libraries of the process, once: it takes milliseconds."""
    return ThreadpoolController()
