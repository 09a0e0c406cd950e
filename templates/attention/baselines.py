"""What attention kernels must beat: torch's own by name, and others where they are installed.

Each takes the inputs q, k, v (B, H, L, D) and gives o, of the same shape; extra copies are none of its work.
Those that have tiles to choose are Tunable: evo's own stopwatch chooses.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.task import Baseline, Tunable, load_module
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

BACKENDS = {
    "sdpa": None,
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
"""scaled_dot_product_attention: what torch itself chooses, and its backends by name."""
DISTRIBUTIONS = (
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "triton",
    "flash-attn", "flash-attn-3", "flash-attn-4", "flashinfer-python",
)  # fmt: skip
"""Where the others come from, and cuDNN."""


def quick(causal: bool) -> dict[str, Baseline]:
    """Those whose first call takes no time worth mentioning."""
    found = {name: _sdpa(backend, causal) for name, backend in BACKENDS.items()}
    return found | {"hybrid": _hybrid(causal)}


def patient(problem: Problem) -> dict[str, Baseline]:
    """Those that are compiled in their first call; whatever stops one of them there is a RuntimeError."""
    causal, d = bool(problem["causal"]), int(problem["D"])
    found: dict[str, Baseline] = {"flex": _flex(causal)}
    if _installed("triton") and d & (d - 1) == 0:
        found["triton"] = _triton(causal)
    packages = {
        "flash-attn": ("flash_attn", _flash_attn),
        "flash-attn-3": ("flash_attn_interface", _flash_attn),
        "flash-attn-4": ("flash_attn.cute", _flash_attn),
        "flashinfer": ("flashinfer", _flashinfer),
    }
    for name, (package, made) in packages.items():
        if _installed(package) and (name != "flashinfer" or problem["B"] == 1):
            found[name] = _explained(made(package, causal))
    return found


def runs(run: Baseline, tensors: Mapping[str, Tensor]) -> bool:
    """Whether torch has this implementation for these tensors: it says so by a RuntimeError and warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(tensors)
        except RuntimeError:
            return False
    return True


def _installed(module: str) -> bool:
    """Whether there is such a module with code of its own: flash-attn 4 lies in a folder `flash_attn`, which
    is no flash-attn 2."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, OSError):  # its parent is not there, or cannot be imported
        return False
    return found is not None and found.origin is not None


def _explained(run: Baseline) -> Baseline:
    """Compilers raise anything."""

    @functools.wraps(run)
    def explained(inputs: Mapping[str, Tensor]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return run(inputs)
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return explained


SDPA = "torch.nn.functional.scaled_dot_product_attention"


def sdpa(causal: bool) -> Baseline:
    """torch's attention, by the backend that torch chooses."""
    import torch

    def run(inputs: Mapping[str, Tensor]) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            inputs["q"], inputs["k"], inputs["v"], is_causal=causal
        )

    return run


def _sdpa(backend: str | None, causal: bool) -> Baseline:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    default = sdpa(causal)
    if backend is None:
        return default
    chosen = getattr(SDPBackend, backend)

    def by_name(inputs: Mapping[str, Tensor]) -> Any:
        with sdpa_kernel(chosen):
            return default(inputs)

    return by_name


def _hybrid(causal: bool) -> Baseline:
    """Three calls: Q Kᵀ and P V by the BLAS library, the softmax between them by torch."""
    import torch

    def run(inputs: Mapping[str, Tensor]) -> Any:
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
            scores = scores.masked_fill_(hidden, -math.inf)
        return torch.softmax(scores, -1) @ v

    return run


FLEX_TILES = (
    (64, 128, 3, 4),
    (64, 64, 3, 4),
    (128, 64, 3, 4),
    (128, 64, 3, 8),
    (128, 128, 3, 4),
    (128, 128, 2, 8),
    (128, 128, 1, 8),
)
"""Rows, keys, stages and warps: what Inductor chooses among (max-autotune), and takes unasked on Hopper."""


def _flex(causal: bool) -> Tunable:
    """torch's FlexAttention, compiled for exactly these shapes with each of FLEX_TILES. Its block mask is
    made once: without one, two more kernels would make it in every call."""
    masks: list[Any] = []

    def mask(q: Tensor, k: Tensor) -> Any:
        from torch.nn.attention import flex_attention as flex

        if not masks:
            length = q.shape[2]
            masks.append(
                flex.create_block_mask(
                    lambda _b, _h, i, j: i >= j, None, None, length, length, device=q.device
                )
                if causal
                else getattr(flex, "_create_empty_block_mask", lambda *_: None)(q, k)
            )
        return masks[0]

    def variant(options: dict[str, int]) -> Baseline:
        compiled: list[Any] = []

        def run(inputs: Mapping[str, Tensor]) -> Any:
            import torch
            from torch.nn.attention import flex_attention as flex

            if not compiled:
                # whole, or not at all: torch would rather run it uncompiled after eight compilations
                compiled.append(torch.compile(flex.flex_attention, dynamic=False, fullgraph=True))
            q, k, v = inputs["q"], inputs["k"], inputs["v"]
            return compiled[0](q, k, v, block_mask=mask(q, k), kernel_options=options)

        return _explained(run)

    names = ("BLOCK_M", "BLOCK_N", "num_stages", "num_warps")
    every = [dict(zip(names, tile, strict=True)) for tile in FLEX_TILES]
    return Tunable({_told(options): variant(options) for options in every})


TRITON_TILES = tuple(
    (rows, keys, stages, warps)
    for rows, warps in ((64, 4), (128, 4), (128, 8))
    for keys in (64, 128)
    for stages in (2, 3)
)
"""Rows, keys, stages and warps of our kernel in Triton."""


def _triton(causal: bool) -> Tunable:
    """Our flash kernel in Triton (triton_flash.py beside this file), with each of TRITON_TILES. The first
    call compiles them all at once, which Triton does outside of Python's lock: 1.7 s instead of 9."""

    def launched(options: dict[str, int], inputs: Mapping[str, Tensor]) -> Any:
        return _triton_flash().attention(inputs["q"], inputs["k"], inputs["v"], causal, **options)

    names = ("ROWS", "KEYS", "num_stages", "num_warps")
    every = [dict(zip(names, tile, strict=True)) for tile in TRITON_TILES]
    compiled: list[bool] = []

    def compile_all(inputs: Mapping[str, Tensor]) -> None:
        import torch

        def compile_one(options: dict[str, int]) -> None:
            with suppress(Exception), torch.cuda.device(inputs["q"].device):  # its own call will say so again
                launched(options, inputs)

        _triton_flash()
        with ThreadPoolExecutor(len(every)) as threads:
            list(threads.map(compile_one, every))
        torch.cuda.synchronize(inputs["q"].device)

    def variant(options: dict[str, int]) -> Baseline:
        def run(inputs: Mapping[str, Tensor]) -> Any:
            if not compiled:
                compile_all(inputs)
                compiled.append(True)
            return launched(options, inputs)

        return _explained(run)

    return Tunable({_told(options): variant(options) for options in every})


@functools.cache
def _triton_flash() -> Any:
    return load_module(Path(__file__).with_name("triton_flash.py"))


def _told(settings: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _flash_attn(module: str, causal: bool) -> Baseline:
    """A flash-attn package: 2 and 3 in CUDA C++, 3 on CUTLASS, 4 in CUTLASS's Python (CuTe). They want
    (B, L, H, D) and take it by strides; 4, and 3 at first, return the sums of exponentials too."""

    def run(inputs: Mapping[str, Tensor]) -> Any:
        q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
        out = importlib.import_module(module).flash_attn_func(q, k, v, causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return run


def _flashinfer(_module: str, causal: bool) -> Baseline:
    """FlashInfer's prefill for one sequence; it wants q as (L, H, D)."""

    def run(inputs: Mapping[str, Tensor]) -> Any:
        import flashinfer  # type: ignore[import-not-found]

        q, k, v = (inputs[name][0].transpose(0, 1) for name in "qkv")
        out = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal)
        return out.transpose(0, 1)[None]

    return run
