"""A kernel of your own: `evo new` from a .cu file, `evo try`, and what is understood of a source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import Evo

from evo.errors import UsageError
from evo.importers import make_task
from evo.importers.source import read_source
from evo.task import load_task
from evo.template import load_template

SAXPY = """
#ifndef block_size_x
#define block_size_x 128
#endif
#ifndef per_thread
#define per_thread 1
#endif
__global__ void saxpy(const float* x, float* __restrict__ y, int n) {
  for (int j = 0; j < per_thread; ++j) {
    int i = (blockIdx.x * per_thread + j) * block_size_x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i] + y[i];
  }
}
"""
TRANSPOSE = """
// extern "C" __global__ void not_this(float* x);
extern "C" __global__ void __launch_bounds__(256) transpose(
    const __half* from, __half *to, int rows, int columns) {
  int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows && c < columns) to[c * rows + r] = from[r * columns + c];
}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.cu"
    path.write_text(text)
    return path


def test_a_source_says_its_arguments_tunables_and_formula(tmp_path: Path) -> None:
    found = read_source(written(tmp_path, SAXPY))
    assert found.entry == "saxpy"
    assert [(a.name, a.dtype, a.role) for a in found.arguments] == [
        ("x", "fp32", "in"), ("y", "fp32", "inout"), ("n", "i32", "")
    ]  # fmt: skip
    assert found.tunables == {"block_size_x": 128, "per_thread": 1}
    assert found.formula == {"y": '2.0 * x["x"] + x["y"]'}
    for named in ("#define element __half", "using element = __half;", "typedef __half element;"):
        typed = TRANSPOSE.replace("__half", "element")
        assert [a.dtype for a in read_source(written(tmp_path, f"{named}\n{typed}")).arguments[:2]] == [
            "fp16"
        ] * 2
    other = read_source(written(tmp_path, TRANSPOSE))
    assert [(a.name, a.dtype, a.role) for a in other.arguments[:2]] == [
        ("from", "fp16", "in"), ("to", "fp16", "out")
    ]  # fmt: skip
    assert not other.formula


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int main() { return 0; }", "has 0 kernels"),
        ("__global__ void a(int n) {}\n__global__ void b(int n) {}", "has 2 kernels"),
        ("struct S {}; __global__ void a(S s) {}", "argument 'S s' is not understood"),
        ("__global__ void a(float (*f)(float)) {}", "are not plain"),
    ],
)
def test_a_source_that_is_not_understood_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_task("mine", tmp_path / "tasks", written(tmp_path, text))
    assert not (tmp_path / "tasks" / "mine").exists()


@pytest.mark.parametrize(
    ("line", "formula"),
    [
        ("z[i] = expf(x[i]) * n;", {"z": 'torch.exp(x["x"]) * problem["n"]'}),
        ("z[i] -= a * x[i];", {"z": 'x["z"] - ( 2.0 * x["x"])'}),
        ("z[i] = fmaxf(x[i], 0.f);", None),
        ("z[i] = x[i] > 0 ? x[i] : 0;", None),
        ("z[i] = x[i + 1];", None),
        ("z[i] = lookup(x[i]);", None),
    ],
)
def test_a_formula_is_taken_only_where_it_is_certain(tmp_path: Path, line: str, formula: object) -> None:
    text = f"__global__ void k(const float* x, float* z, int n, float a) {{ int i = threadIdx.x; {line} }}"
    assert read_source(written(tmp_path, text)).formula == (formula or {})


def test_what_is_made_is_a_task_and_a_template(tmp_path: Path) -> None:
    made = make_task("mine", tmp_path, written(tmp_path, TRANSPOSE))
    assert "say in `compute` what is right" in made.missing
    task = load_task("mine", (tmp_path,))
    template = load_template(task, "mine", (tmp_path,))
    launch = template.candidate(template.space.default, task.example).launch
    assert [arg.kind for arg in launch.args] == ["buffer", "buffer", "scalar", "scalar"]
    with pytest.raises(UsageError, match="is there already"):
        make_task("mine", tmp_path)
    with pytest.raises(UsageError, match="unusable name"):
        make_task("My-Kernel", tmp_path)


@pytest.mark.nvcc
def test_from_a_source_to_green_and_to_a_planted_fault(evo: Evo, tmp_path: Path) -> None:
    assert evo("new", "saxpy", "--from", str(written(tmp_path, SAXPY))).code == 0
    device = ["--shape", "1000", "--device", "emulator"]
    good = evo("try", "saxpy", "block_size_x=64", "per_thread=4", *device, "--json")
    assert (good.code, json.loads(good.out)["outcome"]) == (0, "GREEN")
    assert evo("try", "saxpy", "block_size_x=63", *device).code == 2
    kernel = tmp_path / "tasks" / "saxpy" / "saxpy.cu"
    kernel.write_text(kernel.read_text().replace("if (i < n) ", ""))
    wrong = evo("try", "saxpy", *device)
    assert wrong.code == 4
    assert "out of bounds" in wrong.out
    assert "candidate.cu:" in wrong.out
    assert re.search(r"source +line \d+: y\[i\] = 2\.0f \* x\[i\] \+ y\[i\];", wrong.out)
