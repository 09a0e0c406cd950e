"""What other tuners put into constant memory is taken, and HIP's header where nothing else is HIP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Evo

from evo.errors import UsageError
from evo.importers import import_file
from evo.task import BufferSpec, load_task

SCRIPT = """
import numpy as np
from kernel_tuner import tune_kernel

size = 500
taps = 5
x = np.random.randn(size + taps - 1).astype(np.float32)
weight = np.random.randn(taps).astype(np.float32)
y = np.zeros(size).astype(np.float32)
tune_kernel("smooth", "smooth.cu", size, [y, x, np.int32(size)], {"block_size_x": [32, 64]},
    cmem_args={"d_weight": weight})
"""
KERNEL = """#define MOST 9
__constant__ float d_weight[MOST];
__constant__ float2 d_unused[4];

__global__ void smooth(float* y, const float* x, int n) {
  int i = blockIdx.x * block_size_x + threadIdx.x;
#if USE_OTHER == 1
  y[i] = d_unused[0].x;
#endif
  if (i >= n) return;
  float sum = 0.f;
  for (int k = 0; k < 5; ++k) sum += x[i + k] * d_weight[k];
  y[i] = sum;
}
"""
RIGHT = 'return x["x"].unfold(0, 5, 1) @ x["d_weight"]'
T1: dict[str, Any] = {
    "ConfigurationSpace": {
        "TuningParameters": [{"Name": "block_size_x", "Type": "int", "Values": "[32, 64]"}]
    },
    "KernelSpecification": {
        "Language": "CUDA",
        "KernelName": "smooth",
        "KernelFile": "smooth.cu",
        "ProblemSize": 500,
        "LocalSize": {"X": "block_size_x"},
        "GlobalSize": {"X": "1"},
        "Arguments": [
            {"Name": "y", "Type": "float", "Size": "ProblemSize[0]", "MemoryType": "Vector",
             "AccessType": "WriteOnly", "FillType": "Constant", "FillValue": 0.0},
            {"Name": "x", "Type": "float", "Size": "ProblemSize[0] + 4", "MemoryType": "Vector"},
            {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": "500"},
            {"Name": "d_weight", "Type": "float", "Size": 5, "MemoryType": "Vector", "MemType": "Constant"},
        ],
    },
}  # fmt: skip


def imported(folder: Path, script: str = SCRIPT, kernel: str = KERNEL) -> dict[str, BufferSpec]:
    """The buffers of the task, by name."""
    (folder / "tune.py").write_text(script)
    (folder / "smooth.cu").write_text(kernel)
    import_file("kernel-tuner", folder / "tune.py", folder / "tasks")
    task = load_task("smooth", (folder / "tasks",))
    return {buffer.name: buffer for buffer in task.buffers(task.example)}


def test_constant_memory_of_a_script_is_a_tensor_of_the_task(tmp_path: Path) -> None:
    buffers = imported(tmp_path)
    assert buffers["d_weight"] == BufferSpec("d_weight", (5,), "fp32", "in", "d_weight")
    assert 'args=["y", "x", "size"]' in (tmp_path / "tasks/smooth/smooth.py").read_text()


def test_an_array_that_is_an_argument_too_is_one_tensor(tmp_path: Path) -> None:
    script = SCRIPT.replace("np.int32(size)]", "np.int32(size), weight]")
    buffers = imported(tmp_path, script, KERNEL.replace("int n)", "int n, float* weight)"))
    assert [(one.name, one.constant) for one in buffers.values()] == [
        ("y", None), ("x", None), ("weight", "d_weight")
    ]  # fmt: skip
    assert 'args=["y", "x", "size", "weight"]' in (tmp_path / "tasks/smooth/smooth.py").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("MOST 9", "MOST 4", "tune.py:10: __constant__ d_weight has room for 4 elements, .* filled with 5"),
        ("MOST 9", "MOST (2 * sizeof(int))", ""),  # not understood: left to the device
        ("float d_weight", "double d_weight", "tune.py:10: d_weight is fp32 in the file and fp64 in the"),
        ("float d_weight[MOST]", "float d_w[MOST]", "tune.py:10: the kernel has no __constant__ d_weight"),
        ("#if USE_OTHER == 1", "", "smooth.cu:3: .* nothing fills: __constant__ float2 d_unused.4.;"),
        ("d_unused[4];", "d_unused[4] = {};", ""),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_kernel_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    kernel = KERNEL.replace(old, new)
    kernel = kernel.replace("#endif\n", "") if not new else kernel
    if not said:
        assert imported(tmp_path, SCRIPT, kernel)["d_weight"].constant == "d_weight"
        return
    with pytest.raises(UsageError, match=said) as caught:
        imported(tmp_path, SCRIPT, kernel)
    assert caught.value.hint


@pytest.mark.nvcc
@pytest.mark.parametrize("argument", ["", ", float* weight"])
def test_a_t1_file_with_constant_memory_is_green(evo: Evo, tmp_path: Path, argument: str) -> None:
    """Kernel Tuner passes such arrays as arguments, too, where the kernel takes so many."""
    (tmp_path / "t1.json").write_text(json.dumps(T1))
    (tmp_path / "smooth.cu").write_text(KERNEL.replace("int n)", f"int n{argument})"))
    import_file("kernel-tuner", tmp_path / "t1.json", tmp_path / "tasks")
    task = tmp_path / "tasks/smooth/task.py"
    lines = [RIGHT if "raise Not" in line else line.strip("\n") for line in task.read_text().splitlines()]
    task.write_text("\n".join(f"        {line}" if line is RIGHT else line for line in lines))
    assert '"d_weight": In(5, constant="d_weight")' in task.read_text()
    small = ["--device", "emulator", "--json"]
    good = evo("try", "smooth", *small)
    assert (good.code, json.loads(good.out)["outcome"]) == (0, "GREEN"), good.out + good.err
    kernel = tmp_path / "tasks/smooth/smooth.cu"
    kernel.write_text(kernel.read_text().replace("d_weight[k]", "d_weight[4 - k]"))
    assert json.loads(evo("try", "smooth", *small).out)["outcome"] == "RED"


@pytest.mark.parametrize("header", ['"hip/hip_runtime.h"', "<hip/hip_runtime.h>"])
def test_a_header_of_hip_alone_makes_no_hip(tmp_path: Path, header: str) -> None:
    assert imported(tmp_path, SCRIPT, f"#include {header}\n{KERNEL}")
    assert "hip" not in (tmp_path / "tasks/smooth/smooth.cu").read_text()
    used = KERNEL.replace("threadIdx.x", "hipThreadIdx_x")
    with pytest.raises(UsageError, match=r"smooth.cu:6: the kernel is HIP: hipThreadIdx_x"):
        imported(tmp_path, SCRIPT, used)


def test_constant_memory_that_nothing_fills_is_said_with_its_line(tmp_path: Path) -> None:
    script = SCRIPT.replace('cmem_args={"d_weight": weight}', "verbose=True")
    said = (
        r"smooth.cu:2: the kernel reads constant memory that nothing fills: __constant__ float d_weight\[MOST"
    )
    with pytest.raises(UsageError, match=said):
        imported(tmp_path, script)
