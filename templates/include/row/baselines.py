"""What row kernels must beat, as far as it does not depend on the task: compiled code, and the roof."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from evo.task import Baseline

if TYPE_CHECKING:
    from torch import Tensor


def compiled(run: Baseline) -> Baseline:
    """`run` by torch.compile, tuned as far as it goes; the stopwatch captures graphs itself."""
    import torch

    tuned = torch.compile(run, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
    return explained(tuned)


def explained(run: Baseline) -> Baseline:
    """Compilers raise anything; a baseline raises RuntimeError."""

    @functools.wraps(run)
    def called(inputs: Mapping[str, Tensor]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return run(inputs)
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return called


def installed(makers: Mapping[str, tuple[str, Callable[[], Baseline]]]) -> dict[str, Baseline]:
    """Those whose package is there: name -> (package, what makes the baseline)."""
    return {
        name: explained(make())
        for name, (package, make) in makers.items()
        if importlib.util.find_spec(package) is not None
    }


def clone(nbytes: int, torch_device: str = "cuda") -> Callable[[], Tensor]:
    """The roof: torch.clone of so many bytes that it moves `nbytes`, half of them read."""
    import torch

    source = torch.empty(max(1, nbytes // 2), dtype=torch.uint8, device=torch_device).random_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
