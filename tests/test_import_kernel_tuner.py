"""`evo import kernel-tuner`: scripts that are read and not run, T1 files, what is refused with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import Evo

from evo.errors import EvoError, UsageError
from evo.importers import Made, import_file
from evo.task import load_task
from evo.template import load_template

SCRIPT = """
import os
import numpy as np
from kernel_tuner import tune_kernel
raise SystemExit("a script that is imported does not run")

def rows(n):
    return 2 * n

def tune():
    with open("scale.cu") as f:
        source = f.read()
    width = 200
    height = rows(width) // 4
    size = (width, height)
    x = np.random.randn(height, width).astype(np.float32)
    weight = np.random.rand(width).astype(np.float32)
    y = np.zeros_like(x)
    tune_params = dict()
    tune_params["block_size_x"] = [32 * i for i in range(1, 4)]
    tune_params["block_size_y"] = [1, 2]
    tune_params["UNROLL"] = [1, 2]
    tune_params["stride"] = [width]  # the size is in the kernel's code
    most = 128
    arguments = [y, x, weight, np.float32(0.1), np.int32(width), np.int32(height)]
    restrictions = ["block_size_x * block_size_y <= 128"]
    restrictions.append(lambda p: p["UNROLL"] == 1 or p["block_size_x"] <= most // 2)
    return tune_kernel("scale", source, size, arguments, tune_params, grid_div_y=["block_size_y"],
        answer=[x * weight * np.float32(0.1)] + [None] * 5, restrictions=restrictions)

if __name__ == "__main__":
    tune()
"""
KERNEL = """
#ifndef kernel_tuner
#define UNROLL 1
#endif
__global__ void scale(float *y, float *x, float *weight, float factor, int width, int height) {
  int c = blockIdx.x * block_size_x + threadIdx.x, r = blockIdx.y * block_size_y + threadIdx.y;
  #pragma unroll UNROLL
  for (int k = 0; k < 1; ++k)
    if (c < width && r < height) y[r * width + c] = x[r * stride + c] * weight[c] * factor;
}
"""
T1: dict[str, Any] = {
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "BLOCK", "Type": "int", "Values": "[32 * i for i in range(1, 4)]", "Default": 64},
            {"Name": "WORK", "Type": "int", "Values": "list(range(1, 3))"},
        ],
        "Conditions": [{"Expression": "BLOCK * WORK <= 128", "Parameters": ["BLOCK", "WORK"]}],
    },
    "KernelSpecification": {
        "Language": "CUDA",
        "KernelName": "triple",
        "KernelFile": "triple.cu",
        "GlobalSize": {"X": "(1000 // BLOCK // WORK) + 1"},
        "LocalSize": {"X": "BLOCK"},
        "Arguments": [
            {"Name": "x", "Type": "float", "Size": 1000, "MemoryType": "Vector", "AccessType": "ReadOnly"},
            {"Name": "y", "Type": "float", "Size": 1000, "MemoryType": "Vector", "AccessType": "WriteOnly",
             "FillType": "Constant", "FillValue": 0.0},
            {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 1000},
        ],
    },
}  # fmt: skip
TRIPLE = """
extern "C" __global__ void triple(float* x, float* y, int n) {
  for (int k = 0; k < WORK; ++k) {
    int i = (blockIdx.x * WORK + k) * BLOCK + threadIdx.x;
    if (i < n) y[i] = 3 * x[i];
  }
}
"""


def imported(folder: Path, script: str, kernel: str = KERNEL, **options: Any) -> Made:
    (folder / "tune.py").write_text(script)
    (folder / "scale.cu").write_text(kernel)
    return import_file("kernel-tuner", folder / "tune.py", folder / "tasks", **options)


def imported_t1(folder: Path, changed: dict[str, Any], **options: Any) -> Made:
    said = {**T1, "KernelSpecification": {**T1["KernelSpecification"], **changed}}
    (folder / "t1.json").write_text(json.dumps(said, indent=1))
    (folder / "triple.cu").write_text(TRIPLE)
    return import_file("kernel-tuner", folder / "t1.json", folder / "tasks", **options)


def test_a_script_is_read_and_becomes_a_task(tmp_path: Path) -> None:
    made = imported(tmp_path, SCRIPT)
    assert (made.name, made.missing) == ("scale", "")
    task = load_task("scale", (tmp_path / "tasks",))
    assert (dict(task.example.sizes), tuple(task.fixed)) == ({"width": 200}, ("width",))  # stride is a macro
    shapes = {buffer.name: (buffer.shape, buffer.role) for buffer in task.buffers(task.example)}
    assert shapes == {"y": ((100, 200), "out"), "x": ((100, 200), "in"), "weight": ((200,), "in")}
    inputs = task.inputs(task.example, "normal", 1, "cpu")
    right = inputs["x"].double() * inputs["weight"].double() * float(np.float32(0.1))
    assert bool((task.reference(task.example, inputs)["y"] - right).abs().max() < 1e-12)


def test_tunables_restrictions_grid_and_macros_are_the_scripts(tmp_path: Path) -> None:
    imported(tmp_path, SCRIPT)
    task = load_task("scale", (tmp_path / "tasks",))
    template = load_template(task, "scale", (tmp_path / "tasks",))
    values = {parameter.name: parameter.values for parameter in template.space.parameters}
    assert values == {"block_size_x": (32, 64, 96), "block_size_y": (1, 2), "UNROLL": (1, 2)}
    problem = task.example
    limits_of = template.gpu
    from evo.gpu import Limits

    refused = {
        (point["block_size_x"], point["block_size_y"], point["UNROLL"])
        for x in (32, 64, 96)
        for y in (1, 2)
        for u in (1, 2)
        if template.space.why_not(
            point := {"block_size_x": x, "block_size_y": y, "UNROLL": u}, Limits.of(limits_of), problem
        )
    }
    assert refused == {(96, 2, 1), (96, 2, 2), (96, 1, 2)}
    candidate = template.candidate({"block_size_x": 96, "block_size_y": 2, "UNROLL": 2}, problem)
    assert candidate.launch.grid == (3, 50, 1)
    for line in ("#define stride 200", "#define UNROLL 2", "#define kernel_tuner 1"):
        assert line in candidate.source


RULE = '"block_size_x * block_size_y <= 128"'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (RULE, '"block_size_x * nothing <= 128"', "unknown name nothing in"),
        (RULE, "lambda p: os.getpid() > p['UNROLL']", "tune.py:26.*may not have"),
        ("most = 128", "most = int(os.environ['MOST'])", "tune.py:27: a restriction depends on"),
        ("width = 200", "width = int(input())", "depends on .*tune.py:13"),
        ("np.random.randn(height, width)", "np.load('x')", "a call of numpy.load .*tune.py:16"),
        ("np.int32(width)", "width", "argument width is a number without a type"),
        ("np.int32(width), np", "np", "5 arguments for a kernel that has 6"),
        (".rand(width).astype(np.float32)", ".rand(width)", "weight is fp64 in the script, fp32 in the"),
        ('answer=', 'cmem_args={"d_w": weight}, answer=', "tune.py:28: the kernel has no __constant__ d_w"),
        ('answer=', 'cmem_args=np.load("w"), answer=', "tune.py:28: cmem_args depends on .*numpy.load"),
        ('answer=', 'texmem_args={"tex": x}, answer=', "tune.py:28: texmem_args fills textures: tex"),
        ('answer=', 'lang="OpenCL", answer=', "the kernel is OpenCL"),
        ('"scale", source', '"scale<float>", source', "scale.cu:1: scale<float> is an instance of"),
        ('"scale", source', '"other", source', "the kernel other is not there"),
        ("return tune_kernel", "return other", "tune.py:1: there is no call of tune_kernel"),
        ("[32 * i for i in range(1, 4)]", "some()", r"tune_params\['block_size_x'\] depends on `some`"),
        ("def rows(n):", "def rows(n:", r"tune.py:7: .*'\(' was never closed"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in SCRIPT
    with pytest.raises(EvoError, match=said):
        imported(tmp_path, SCRIPT.replace(old, new))
    assert not (tmp_path / "tasks").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("__global__", "template <int n>\n__global__", "scale.cu:6.* is a C.. template"),
        ("__global__ void", "__kernel void", "scale.cu:5: the kernel is OpenCL"),
        ("int width,", "Sizes& width,", "scale.cu:5: argument 'Sizes& width' is not taken"),
        ("#ifndef kernel_tuner", '#include "missing.h"\n#ifndef kernel_tuner', "scale.cu:2: .*missing.h"),
    ],
)  # fmt: skip
def test_sources_that_evo_cannot_take_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        imported(tmp_path, SCRIPT, KERNEL.replace(old, new))


def test_without_an_answer_the_author_must_say_what_is_right(tmp_path: Path) -> None:
    script = SCRIPT.replace("answer=[x * weight", "other=[x * weight")
    made = imported(tmp_path, script)
    assert "say in `compute` what is right: the script has no answer=" in made.missing
    line = int(made.missing.split(":")[1])
    assert "NotImplementedError" in (tmp_path / "tasks/scale/task.py").read_text().splitlines()[line - 1]


COLUMN_SUM = """
import numpy as np
import kernel_tuner
rows, cols = 1000, 777
x = np.random.randn(rows, cols).astype(np.float32)
y = np.zeros(cols, np.float32)
kernel_tuner.tune_kernel("sums", "scale.cu", cols, [y, x, np.int32(rows), np.int32(cols)],
    {"block_size_x": [64]}, answer=[x.sum(axis=0), None, None, None])
"""
SUMS = """
__global__ void sums(float *y, const float *x, int rows, int cols) {
  int c = blockIdx.x * block_size_x + threadIdx.x;
  float s = 0;
  for (int r = 0; r < rows && c < cols; ++r) s += x[r * cols + c];
  if (c < cols) y[c] = s;
}
"""


@pytest.mark.parametrize(
    ("answer", "summed"), [("x.sum(axis=0)", ("rows",)), ("(x.T @ x).sum(axis=0)", ("rows", "cols"))]
)
def test_sizes_of_a_tuple_have_names_and_those_that_an_answer_adds_up_along_are_said(
    tmp_path: Path, answer: str, summed: tuple[str, ...]
) -> None:
    imported(tmp_path, COLUMN_SUM.replace("x.sum(axis=0)", answer), SUMS)
    task = load_task("sums", (tmp_path / "tasks",))
    assert (dict(task.example.sizes), task.fixed, task.summed) == ({"cols": 777, "rows": 1000}, (), summed)
    assert {name: tensor.dimensions for name, tensor in task.tensors.items()} == {
        "y": ("cols",),
        "x": ("rows", "cols"),
    }


def test_a_number_that_only_the_script_knows_can_be_named(tmp_path: Path) -> None:
    script = SCRIPT.replace("width = 200", "width = int(input())")
    imported(tmp_path, script, given={"width": 96})
    assert load_task("scale", (tmp_path / "tasks",)).example.sizes["width"] == 96


def test_a_reference_file_is_all_that_is_known(tmp_path: Path) -> None:
    x = np.arange(1000, dtype=np.float32)
    np.savez(tmp_path / "right.npz", x=x, y=3 * x)
    imported_t1(tmp_path, {}, reference=tmp_path / "right.npz")
    task = load_task("triple", (tmp_path / "tasks",))
    inputs = task.inputs(task.example, "given", 7, "cpu")
    assert inputs["x"].tolist() == x.tolist()
    assert task.reference(task.example, inputs)["y"].tolist() == (3 * x).tolist()
    with pytest.raises(UsageError, match="not known for 999"):
        task.problem("999")


def test_a_t1_file_becomes_a_task_and_a_template(tmp_path: Path) -> None:
    made = imported_t1(tmp_path, {})
    assert "a T1 file has no reference" in made.missing
    task = load_task("triple", (tmp_path / "tasks",))
    assert (dict(task.example.sizes), tuple(task.fixed)) == ({"n": 1000}, ("n",))  # its lengths are numbers
    template = load_template(task, "triple", (tmp_path / "tasks",))
    assert dict(template.space.default) == {"BLOCK": 64, "WORK": 1}
    candidate = template.candidate({"BLOCK": 96, "WORK": 1}, task.example)
    assert candidate.launch.grid == (11, 1, 1)
    assert "#define BLOCK 96" in candidate.source


def test_numbers_that_no_length_has_and_no_sign_are_no_sizes(tmp_path: Path) -> None:
    arguments = [dict(one) for one in T1["KernelSpecification"]["Arguments"]]
    arguments[2]["Type"] = "uint32"  # a digest, the seed of something
    for buffer in arguments[:2]:
        buffer["Size"] = 1001
    imported_t1(tmp_path, {"Arguments": arguments, "GlobalSize": {"X": "16"}})
    assert dict(load_task("triple", (tmp_path / "tasks",)).example.sizes) == {"length": 1001}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Language": "OpenCL"}, r"t1.json:\d+: the kernel is OpenCL"),
        ({"KernelFile": "none.cu"}, "there is no file .*none.cu"),
        ({"Arguments": T1["KernelSpecification"]["Arguments"][:2]}, "2 arguments for a kernel that has 3"),
        ({"LocalSize": {"X": "threads"}}, "unknown name threads in: threads"),
        ({"LocalSize": {"X": "__import__('os').getpid()"}}, "may not have"),
    ],
)  # fmt: skip
def test_t1_files_that_cannot_be_taken_are_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        imported_t1(tmp_path, changed)


@pytest.mark.nvcc
@pytest.mark.slow  # the page's script goes to GREEN in each run (test_documents)
def test_from_a_script_to_green_and_to_a_planted_fault(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "tune.py").write_text(SCRIPT)
    (tmp_path / "scale.cu").write_text(KERNEL)
    made = evo("import", "kernel-tuner", str(tmp_path / "tune.py"))
    assert made.code == 0, made.err
    small = ["--shape", "50", "--device", "emulator"]
    good = evo("try", "scale", "block_size_x=64", "UNROLL=2", *small, "--json")
    assert (good.code, json.loads(good.out)["outcome"]) == (0, "GREEN")
    kernel = tmp_path / "tasks" / "scale" / "scale.cu"
    kernel.write_text(kernel.read_text().replace("c < width && ", ""))
    wrong = evo("try", "scale", *small)
    assert wrong.code == 4
    assert re.search(r" scale\.cu:\d+ ", wrong.out)
