"""Constant memory in kernels of one's own: `evo.tune`, `evo new`, and calls that refuse it by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import conv1d, pad

import evo as public
from evo.api.declared import Declared, declared
from evo.api.exporting import export
from evo.errors import NothingFound, UsageError
from evo.importers import make_task
from evo.task import load_task
from evo.template import load_template

SMOOTH = """
#define MOST 9
__constant__ float d_filter[MOST];

__global__ void smooth(const float* x, float* y, int n, int taps) {
  const int i = blockIdx.x * block_size_x + threadIdx.x;
  if (i >= n) return;
  float sum = 0.f;
  for (int k = 0; k < taps; ++k) {
    const int j = i + k - taps / 2;
    if (j >= 0 && j < n) sum += x[j] * d_filter[k];
  }
  y[i] = sum;
}
"""


def right(x: torch.Tensor, d_filter: torch.Tensor) -> torch.Tensor:
    taps = d_filter.numel()
    wide = pad(x, (taps // 2, (taps - 1) // 2))
    return conv1d(wide[None, None], d_filter[None, None])[0, 0]


def told(**changed: Any) -> dict[str, Any]:
    inputs = {"x": torch.randn(300), "d_filter": torch.randn(5), "n": 300, "taps": 5}
    return {
        "tune_params": {"block_size_x": [32, 64]}, "inputs": inputs, "reference": right, "device": "emulator",
        "grid": "ceil(n / block_size_x)", "budget": "5m", "workers": 1, "progress": False, **changed,
    }  # fmt: skip


def facts(folder: Path, inputs: dict[str, Any], reference: Callable[..., Any] = right) -> Declared:
    (folder / "smooth.cu").write_text(SMOOTH)
    return declared(folder / "smooth.cu", inputs, {}, reference, None)


def test_an_input_may_be_a_variable_of_the_kernel(tmp_path: Path) -> None:
    found = facts(tmp_path, told()["inputs"])
    held = found.tensors["d_filter"]
    assert (held.role, held.dimensions, held.dtype, held.constant) == ("in", ("taps",), "fp32", "d_filter")
    assert [name for name in found.args or [] if isinstance(name, str)] == ["x", "y"]


def test_a_declared_tensor_names_its_variable(tmp_path: Path) -> None:
    inputs = {"x": public.In("n"), "weight": public.In("taps", constant="d_filter"), "y": public.Out("n")}
    found = facts(tmp_path, {**inputs, "n": 300, "taps": 5})
    assert (found.tensors["weight"].constant, found.tensors["weight"].dtype) == ("d_filter", "fp32")
    assert found.tensors["x"].constant is None


def test_a_variable_that_nothing_fills_is_said(tmp_path: Path) -> None:
    inputs = {"x": torch.ones(300), "n": 300, "taps": 5}
    with pytest.raises(UsageError, match="nothing fills the kernel's __constant__ d_filter"):
        facts(tmp_path, inputs)


POLYGON = """
__constant__ float2 corners[5];
__global__ void nearest(const float2* at, float* y, int n) {
  const int i = blockIdx.x * block_size_x + threadIdx.x;
  if (i >= n) return;
  float least = 3e38f;
  for (int k = 0; k < 5; ++k) {
    const float right = corners[k].x - at[i].x, up = corners[k].y - at[i].y;
    least = fminf(least, right * right + up * up);
  }
  y[i] = least;
}
"""


def nearest(at: torch.Tensor, corners: torch.Tensor) -> torch.Tensor:
    return (corners[None] - at[:, None]).square().sum(-1).amin(1)


@pytest.mark.nvcc
def test_vectors_lie_in_constant_memory_too(tmp_path: Path) -> None:
    inputs = {"at": torch.randn(70, 2), "corners": torch.randn(5, 2), "n": 70}
    changed = {"inputs": inputs, "reference": nearest, "database": tmp_path / "evo.db"}
    assert set(public.tune(POLYGON, **told(**changed)).trials()["status"]) == {"GREEN"}
    with pytest.raises(NothingFound, match="RED row error"):
        public.tune(POLYGON.replace("corners[k].y", "corners[k].x"), **told(**changed))


@pytest.mark.nvcc
def test_a_kernel_with_constants_is_tuned_and_called_and_leaves_not(tmp_path: Path) -> None:
    database = tmp_path / "runs/evo.db"
    study = public.tune(SMOOTH, **told(database=database))
    assert set(study.trials()["status"]) == {"GREEN"}
    best = study.best
    assert best is not None
    x = torch.randn(100)
    for taps in (3, 9):
        weight = torch.randn(taps)
        torch.testing.assert_close(best.kernel(x, weight), right(x, weight))
    why = r"d_filter lies in constant memory \(__constant__ d_filter\), which no call writes yet"
    folders = study._record().template_folders
    with pytest.raises(UsageError, match=f"smooth.* cannot be exported: {why}"):
        export([best.name], tmp_path / "package", templates=folders, database=database)
    assert not (tmp_path / "package").exists()
    kernel = public.kernel(study, device="emulator")
    torch.testing.assert_close(kernel(x, weight), right(x, weight))  # by the fallback
    assert re.search(why, str(kernel.explain(x, weight)))
    wrong = SMOOTH.replace("d_filter[k]", "d_filter[taps - 1 - k]")
    with pytest.raises(NothingFound, match="RED row error"):
        public.tune(wrong, **told(database=database))


def test_a_new_task_of_a_source_declares_its_constants(tmp_path: Path) -> None:
    source = tmp_path / "smooth.cu"
    source.write_text(f"#ifndef block_size_x\n#define block_size_x 64\n#endif\n{SMOOTH}")
    make_task("smooth", tmp_path / "tasks", source)
    task = load_task("smooth", (tmp_path / "tasks",))
    held = {buffer.name: buffer for buffer in task.buffers(task.example)}["d_filter"]
    assert (held.shape, held.role, held.constant) == ((9,), "in", "d_filter")
    template = load_template(task, "smooth", (tmp_path / "tasks",))
    launch = template.launch(template.space.default, task.example)
    assert [one.variable for one in launch.constants] == ["d_filter"]
    source.write_text(SMOOTH.replace("float d_filter[MOST]", "Weights d_filter"))
    with pytest.raises(UsageError, match=r"smooth.cu:3: the type of __constant__ d_filter is not understood"):
        make_task("other", tmp_path / "tasks", source)
