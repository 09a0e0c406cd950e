"""Baselines in Triton compile, in each form that they have; no GPU is needed for that, but Triton is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evo.task import load_module

TEMPLATES = Path(__file__).parents[1] / "templates"


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_rmsnorm_compiles_for_rows_that_fit_a_block_and_longer_ones(add: bool, whole: bool) -> None:
    pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    pointers = dict.fromkeys(("x", "weight", "y"), "*bf16")
    numbers: dict[str, str] = {"pitch": "i32", "columns": "i32", "epsilon": "fp32"}
    constants: dict[str, Any] = {"ADD": add, "BLOCK": 4096, "WHOLE": whole}
    if add:
        pointers["residual"] = "*bf16"
    else:
        constants["residual"] = None
    kernel = load_module(TEMPLATES / "rmsnorm" / "triton_rmsnorm.py")._row
    signature = {**pointers, **numbers, **dict.fromkeys(constants, "constexpr")}
    ordered = {name: signature[name] for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=ordered, constexprs=constants)
    assert ".target sm_90" in compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
