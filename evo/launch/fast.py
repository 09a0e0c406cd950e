"""The compiled table of known calls (fast.cpp): a call that it knows takes it less than a microsecond, plus
the output's allocation and the driver's launch. Nothing here imports evo."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SOURCES = (HERE / "fast.cpp", HERE / "plan.hpp", HERE / "abi.hpp")
"""What the library is built of; the first is compiled."""
NAME = "evo_fast"
Table = Any
"""evo_fast.Table. `call(tensors, out, named)` gives None where the call is not known: what is given by place,
the output or None, and what is given by name. `add(plan, tensors, out, named)` makes it known. In a plan they
are counted in this order."""
_DRIVER = (
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuTensorMapEncodeTiled",
    "cuStreamGetCaptureInfo_v2",
)
"""In the order of `Driver` in abi.hpp."""


class Loaded(NamedTuple):
    """A kernel in this process: the driver's CUfunction and CUcontext, and what must live meanwhile."""

    keep: object
    function: int
    context: int


def table_of(library: Path, names: Sequence[str]) -> Table:
    """A new table of the built `library`, for calls with these names of arguments. ImportError or OSError
    where it cannot be loaded; RuntimeError where torch has no exchange functions that it knows."""
    import torch

    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        raise RuntimeError(f"torch {torch.__version__} has no C exchange of tensors")
    return _module(library).Table(
        torch.Tensor,
        torch.nn.Parameter,
        exchange,
        torch.empty,
        torch.is_grad_enabled,
        tuple(map(sys.intern, names)),
    )


def driver_addresses() -> tuple[int, ...]:
    """What a table's `drive` takes on a machine with a driver; OSError on another."""
    library = ctypes.CDLL("libcuda.so.1")
    return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _DRIVER)


@cache
def _module(library: Path) -> Any:
    loader = ExtensionFileLoader(NAME, str(library))
    spec = importlib.util.spec_from_file_location(NAME, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
