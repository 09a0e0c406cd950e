"""What attention kernels must beat: torch's own by name, and others where they are installed.

Each takes the inputs q, k, v (B, H, L, D) and gives o, of the same shape; extra copies are none of its work.
One that tunes itself has an attribute `tuned`: a function without parameters that tells, after the first
call, what it chose ("" where it cannot be told).
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

Baseline = Callable[[Mapping[str, "Tensor"]], Any]

BACKENDS = {
    "sdpa": None,
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
"""scaled_dot_product_attention: what torch itself chooses, and its backends by name."""


def quick(causal: bool) -> dict[str, Baseline]:
    """Those whose first call takes no time worth mentioning."""
    found = {name: _sdpa(backend, causal) for name, backend in BACKENDS.items()}
    return found | {"hybrid": _hybrid(causal)}


def patient(problem: Problem) -> dict[str, Baseline]:
    """Those that compile or tune themselves in their first call; whatever stops one of them there is a
    RuntimeError."""
    causal, d = bool(problem["causal"]), int(problem["D"])
    found: dict[str, Baseline] = {"flex": _flex(causal)}
    if _installed("triton") and d & (d - 1) == 0:
        found["triton"] = _triton(causal)
    if _installed("flash_attn"):
        found["flash-attn"] = _flash_attn(causal)
    if _installed("flashinfer") and problem["B"] == 1:
        found["flashinfer"] = _flashinfer(causal)
    return {name: _explained(run) for name, run in found.items()}


def runs(run: Baseline, tensors: Mapping[str, Tensor]) -> bool:
    """Whether torch has this implementation for these tensors: it says so by a RuntimeError and warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(tensors)
        except RuntimeError:
            return False
    return True


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


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


def _sdpa(backend: str | None, causal: bool) -> Baseline:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def default(inputs: Mapping[str, Tensor]) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            inputs["q"], inputs["k"], inputs["v"], is_causal=causal
        )

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


def _flex(causal: bool) -> Baseline:
    """torch's FlexAttention, compiled for exactly these shapes; Inductor tunes its tiles (max-autotune). Its
    block mask is made once: without one, two more kernels would make it in every call."""
    state: dict[str, Any] = {}

    def run(inputs: Mapping[str, Tensor]) -> Any:
        import torch
        from torch.nn.attention import flex_attention as flex

        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        if not state:
            length = q.shape[2]
            state["compiled"] = torch.compile(
                flex.flex_attention, dynamic=False, mode="max-autotune-no-cudagraphs"
            )
            state["mask"] = (
                flex.create_block_mask(
                    lambda _b, _h, i, j: i >= j, None, None, length, length, device=q.device
                )
                if causal
                else getattr(flex, "_create_empty_block_mask", lambda *_: None)(q, k)
            )
        return state["compiled"](q, k, v, block_mask=state["mask"])

    run.tuned = _chosen_by_inductor  # type: ignore[attr-defined]
    return run


def _chosen_by_inductor() -> str:
    """The tiles of the FlexAttention kernel that was compiled last in this process, from its source: Inductor
    has no other word for them."""
    try:
        from torch._inductor.codecache import PyCodeCache

        files = [Path(str(module.__file__)) for module in PyCodeCache.modules]
        sources = [file.read_text() for file in files if file.is_file()]
    except (ImportError, AttributeError, OSError):  # nothing of this is torch's word
        return ""
    for source in reversed(sources):
        if "flex_attention" in source and "BLOCK_M : tl.constexpr" in source:
            tiles = re.findall(r"(BLOCK_[MN]) : tl\.constexpr = (\d+)", source)
            launch = re.findall(r"(num_warps|num_stages)=(\d+)", source)
            return " ".join(f"{name}={value}" for name, value in dict([*tiles, *launch]).items())
    return ""


def _triton(causal: bool) -> Baseline:
    """Our flash kernel in Triton (triton_flash.py beside this file), tuned by Triton in its first call."""
    from evo.task import load_module

    state: dict[str, Any] = {}

    def run(inputs: Mapping[str, Tensor]) -> Any:
        if not state:
            state["module"] = load_module(Path(__file__).with_name("triton_flash.py"))
        return state["module"].attention(inputs["q"], inputs["k"], inputs["v"], causal)

    run.tuned = lambda: str(state["module"].tuned()) if state else ""  # type: ignore[attr-defined]
    return run


def _flash_attn(causal: bool) -> Baseline:
    """The flash-attn package; it wants (B, L, H, D) and takes it by strides."""

    def run(inputs: Mapping[str, Tensor]) -> Any:
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]

        q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
        return flash_attn_func(q, k, v, causal=causal).transpose(1, 2)

    return run


def _flashinfer(causal: bool) -> Baseline:
    """FlashInfer's prefill for one sequence; it wants q as (L, H, D)."""

    def run(inputs: Mapping[str, Tensor]) -> Any:
        import flashinfer  # type: ignore[import-not-found]

        q, k, v = (inputs[name][0].transpose(0, 1) for name in "qkv")
        out = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal)
        return out.transpose(0, 1)[None]

    return run
