"""`python -m PACKAGE check` without a GPU: of a task with a flag `out`, and of one without a fallback."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kept import kept
from test_export_kernels import H200
from test_export_workspaces import JOINED
from test_task_kernel import TOYS, kernels

import evo
from evo.cache import Cache, default_folder
from evo.compile import build_table_library, find_compiler
from evo.confirm.champions import Champion, champions
from evo.confirm.portfolio import rows_of
from evo.errors import MachineError, UsageError
from evo.export import bundle_of, write
from evo.task import load_task

__all__ = ["kernels"]
FLAGS: dict[str, Any] = {"layout": "NT", "epilogue": "none", "out": "fp32", "gap": 0}


def written(folder: Path, chosen: list[Champion], *folders: Path) -> Path:
    """The folder of a package."""
    try:
        compiler = find_compiler(None, Cache(default_folder()), parts=("cubin",))
    except MachineError as error:
        pytest.skip(str(error))
    with compiler:
        task = load_task(chosen[0].problem.task, folders)
        bundle = bundle_of(task, chosen, rows_of(chosen), compiler, folders)
    write(bundle, folder, "python", build_table_library(default_folder()))
    return folder


def told(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Of a command in the folder, on a machine without a GPU."""
    command, env = [sys.executable, *words], {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a product whose output is as its inputs, and of one whose output is fp32."""
    task, template, sizes, point = JOINED["skinny"]
    wide = kept(task, template, sizes.replace("16,", "8,"), point, "sm_90a", out="fp32")
    chosen = [kept(task, template, sizes, point, "sm_90a"), wide]
    return written(tmp_path_factory.mktemp("exported") / "gemm", chosen)


@pytest.fixture(scope="module", params=["evo.kernel", "the package"])
def gemm(folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "evo.kernel":
        yield evo.kernel("gemm")
        return
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(folder)
        sys.modules.pop("evo_gemm", None)
        yield importlib.import_module("evo_gemm").gemm


@pytest.mark.nvcc
def test_a_package_of_products_keeps_its_contract(folder: Path) -> None:
    said, _ = told(folder, "-m", "evo_gemm", "check")
    assert said.count("right on gemm ") == 4
    assert {"out=same", "out=fp32"} <= set(said.split())
    said, _ = told(folder, "-c", "from evo_gemm import Place; print(Place('NVIDIA H200', (9, 0)))")
    assert said.strip() == str(H200)


def test_a_text_is_the_flag_and_a_tensor_the_output(gemm: Any) -> None:
    a, b = torch.randn(1, 7, 64).bfloat16(), torch.randn(1, 9, 64).bfloat16()
    due = a.float() @ b.float().mT
    wide = gemm(a, b, out="fp32")
    assert wide.dtype == torch.float32
    assert torch.allclose(wide, due, atol=1e-4)
    assert torch.equal(gemm(a, b, **FLAGS), wide)
    narrow = torch.empty(1, 7, 9, dtype=torch.bfloat16)
    assert gemm(a, b, out=narrow) is narrow
    assert torch.allclose(narrow.float(), due, atol=0.1)
    assert torch.equal(gemm(a, b, out="same"), narrow)
    given = torch.empty(1, 7, 9)
    assert gemm(a, b, out="fp32", c=given) is given
    assert torch.equal(given, wide)
    with pytest.raises((UsageError, ValueError), match="out cannot be fp23"):
        gemm(a, b, out="fp23")


def test_compiled_code_writes_into_an_output_whatever_the_flag(gemm: Any) -> None:
    a, b = torch.randn(1, 7, 64).bfloat16(), torch.randn(1, 9, 64).bfloat16()
    run = torch.compile(lambda a, b: gemm(a, b, out="fp32") + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(run(a, b), gemm(a, b, out="fp32") + 1)
    given = torch.empty(1, 7, 9)
    gemm._writer(FLAGS)(a, b, out=given)  # what inductor's code calls
    assert torch.equal(given, gemm(a, b, out="fp32"))


@pytest.mark.nvcc
def test_a_package_without_a_fallback_says_that_nothing_was_checked(kernels: Path, tmp_path: Path) -> None:
    made = written(tmp_path / "made", [one for one in champions(kernels) if "row_sum" in one.name], TOYS)
    said, why = told(made, "-m", "evo_row_sum", "check", code=3)
    assert "right on" not in said
    assert why == (
        "1 of 1 cases could not be checked here: no kernel serves this call of row_sum: "
        "the tensors lie on cpu\n"
    )
    said, _ = told(made, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert "1 passed, 1 skipped" in said
