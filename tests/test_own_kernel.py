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
from evo.trial import line_of

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
        ("int main() { return 0; }", "has no kernel"),
        ("__global__ void a(int n) {}\n__global__ void b(int n) {}", "has 2 kernels: a, b\nhint: --kernel b"),
        (
            "template <class T> __global__ void a(T* x) {}",
            "C\\+\\+ templates\nhint: write `using T = float;`",
        ),
        (
            "template <typename T, int N> __global__ void a(T* x) {}",
            "typename T>`; make N a macro: #ifndef N, #define N 128",
        ),
        ("template <int N> __global__ void a(int* x) {}", "C\\+\\+ templates\nhint: .* macros"),
        ("__global__ void a(const float* x, int n) {}", "a writes to no buffer"),
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
    (line,) = [i for i, text in enumerate(kernel.read_text().splitlines(), 1) if "y[i] = " in text]
    assert f" saxpy.cu:{line} " in wrong.out, "the user's file, not the rendered source"
    assert re.search(rf"source +line {line}: y\[i\] = 2\.0f \* x\[i\] \+ y\[i\];", wrong.out)
    kernel.write_text(kernel.read_text().replace("2.0f", "two"))
    assert f'saxpy.cu({line}): error: identifier "two" is undefined' in evo("try", "saxpy", *device).out


@pytest.mark.nvcc
def test_lines_are_those_of_the_file_also_beside_includes(evo: Evo, tmp_path: Path) -> None:
    assert evo("new", "saxpy", "--from", str(written(tmp_path, SAXPY))).code == 0
    folder = tmp_path / "tasks" / "saxpy"
    (folder / "include").mkdir()
    (folder / "include" / "outer.cuh").write_text(
        '#pragma once\n#include "inner.cuh"\n\nint outer = wrong;\n'
    )
    (folder / "include" / "inner.cuh").write_text("#pragma once\n// Nothing.\n")
    kernel = folder / "saxpy.cu"
    kernel.write_text(f'#include "inner.cuh"\n#include "outer.cuh"\n{kernel.read_text()}')
    device = ["--shape", "1000", "--device", "emulator"]
    assert "outer.cuh(4): error" in evo("try", "saxpy", *device).out
    (folder / "include" / "outer.cuh").write_text("// Nothing.\n")
    kernel.write_text(kernel.read_text().replace("if (i < n) ", ""))
    (line,) = [i for i, text in enumerate(kernel.read_text().splitlines(), 1) if "y[i] = " in text]
    evo("search", "saxpy", *device, "--budget", "1m", "--workers", "1")
    for words in (("show",), ("emulate",)):
        assert f"saxpy.cu:{line} " in evo(*words, "saxpy-1/0").out
    assert re.search(rf"^  > +{line} \| .*y\[i\] = ", evo("emulate", "saxpy-1/0").out, re.MULTILINE)


def test_a_line_that_a_compiler_names_is_found_in_the_source() -> None:
    source = 'a\n#line 1 "x.cu"\nb\n#line 1 "y.cuh"\nc\nd\n#line 3 "x.cu"\ne\n'
    named = {
        ("candidate.cu", 1): 1,
        ("x.cu", 1): 3,
        ("y.cuh", 2): 6,
        ("x.cu", 3): 8,
        ("x.cu", 9): 0,
        ("z.cu", 1): 0,
    }
    assert {at: line_of(source, *at) for at in named} == named


# ----------------------------------------------------------------------------- kernels as people write them

GEMM = """
#include <cstdio>
#define TILE 16  // of all three matrices
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[TILE][TILE], b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.f;
  for (int t = 0; t < K; t += TILE) {
    a[threadIdx.y][threadIdx.x] = row < M && t + threadIdx.x < K ? A[row * K + t + threadIdx.x] : 0.f;
    b[threadIdx.y][threadIdx.x] = t + threadIdx.y < K && col < N ? B[(t + threadIdx.y) * N + col] : 0.f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}
void run(float* a, float* b, float* c) { gemm<<<dim3(4, 4), dim3(TILE, TILE)>>>(a, b, c, 64, 64, 64); }
int main() {
  printf("{%d\\n", 1);
}
"""
VECTORS = """
#ifndef THREADS
#define THREADS 256 // a CTA
#endif
__global__ void __launch_bounds__(THREADS) add(
    const float4* __restrict__ a, const half2* b, uchar4* c, const float scale, bool twice, size_t n4) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) c[i] = make_uchar4(1, 2, 3, 4);
}
"""
ROWS = """
#if !defined(BLOCK)
#define BLOCK (128)
#endif
__global__ void rows(const float* x, float* y, int height, int width) {
  const int row = blockIdx.x;
  for (int c = threadIdx.x; c < width; c += BLOCK) y[row * width + c] = x[row * width + c];
}
"""
SHIFTED = """
#ifndef TILE
#define TILE 32
#endif
#ifndef ROWS
#define ROWS 8
#endif
__global__ void transpose(float* out, const float* in, int width, int height) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
"""
FOURS = """
#ifndef B
#define B 64
#endif
__global__ void fours(const float* x, float* y, int n) {
  int i = 4 * (blockIdx.x * B + threadIdx.x);
  if (i + 3 < n) *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i);
}
"""


@pytest.mark.parametrize(
    ("text", "shapes", "launch"),
    [
        (GEMM, {"A": (256, 256), "B": (256, 256), "C": (256, 256)}, ((16, 16, 1), (16, 16, 1))),
        (
            VECTORS,
            {"a": (1_000_000, 4), "b": (1_000_000, 2), "c": (1_000_000, 4)},
            ((3907, 1, 1), (256, 1, 1)),
        ),
        (ROWS, {"x": (1000, 1000), "y": (1000, 1000)}, ((1000, 1, 1), (128, 1, 1))),
        (SHIFTED, {"out": (1000, 1000), "in": (1000, 1000)}, ((32, 32, 1), (32, 8, 1))),
        (FOURS, {"x": (1_000_000,), "y": (1_000_000,)}, ((3907, 1, 1), (64, 1, 1))),
        (TRANSPOSE, {"from": (1000, 1000), "to": (1000, 1000)}, ((32, 125, 1), (32, 8, 1))),
    ],
)
def test_shapes_and_launch_are_the_kernels(
    tmp_path: Path, text: str, shapes: object, launch: tuple[object, object]
) -> None:
    make_task("mine", tmp_path, written(tmp_path, text))
    task = load_task("mine", (tmp_path,))
    assert {buffer.name: buffer.shape for buffer in task.buffers(task.example)} == shapes
    template = load_template(task, "mine", (tmp_path,))
    found = template.candidate(template.space.default, task.example).launch
    assert (found.grid, found.block) == launch


def test_the_sides_of_a_matrix_product_are_read_from_its_indices(tmp_path: Path) -> None:
    found = read_source(written(tmp_path, GEMM))
    assert found.shapes == {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
    assert (found.tunables, len(found.notes)) == ({"TILE": 16}, 3)
    assert "#ifndef TILE\n#define TILE 16\n#endif" in found.text
    assert found.text.count("#ifndef __CUDACC_RTC__") == 2


EXTENSION = """
#include <torch/extension.h>
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#ifndef BLOCK_X
#define BLOCK_X 16
#endif
#ifndef BLOCK_Y
#define BLOCK_Y 8
#endif
__global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
twice(const float* in, float* out, const int H, const int W) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < W && y < H) out[y * W + x] = 2 * in[y * W + x];
}
torch::Tensor run(torch::Tensor in) {
  auto out = torch::empty_like(in);
  dim3 block(BLOCK_X, BLOCK_Y), grid(CEIL_DIV(in.size(1), BLOCK_X), CEIL_DIV(in.size(0), BLOCK_Y));
  twice<<<grid, block>>>(in.data_ptr<float>(), out.data_ptr<float>(), in.size(0), in.size(1));
  return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


@pytest.mark.nvcc
def test_an_extension_of_torch_runs_without_its_host_code(evo: Evo, tmp_path: Path) -> None:
    made = evo("new", "twice", "--from", str(written(tmp_path, EXTENSION)))
    for name in ("<torch/extension.h>", "run", "PYBIND11_MODULE"):
        assert f"note: {name} is code of the host" in made.err
    words = ["BLOCK_X=32", "BLOCK_Y=4", "--shape", "19,70", "--device", "emulator", "--json"]
    tried = json.loads(evo("try", "twice", *words).out)
    assert (tried["outcome"], tried["candidate"]["launch"]["block"]) == ("GREEN", [32, 4, 1])


def test_dynamic_shared_memory_is_asked_for_and_said_to_be_a_guess(tmp_path: Path) -> None:
    text = "__global__ void k(float* y, int n) { extern __shared__ double s[]; y[threadIdx.x] = s[0]; }"
    made = make_task("mine", tmp_path, written(tmp_path, text))
    assert any("smem_bytes is a guess" in note for note in made.notes)
    task = load_task("mine", (tmp_path,))
    template = load_template(task, "mine", (tmp_path,))
    launch = template.candidate(template.space.default, task.example).launch
    assert launch.smem_bytes == 8 * launch.threads > 0


def test_a_member_of_a_vector_is_no_argument(tmp_path: Path) -> None:
    text = (
        "__global__ void k(const float2* x, float* y, int n) { int i = threadIdx.y; y[i] = x[i].x + x[i].y; }"
    )
    roles = {a.name: a.role for a in read_source(written(tmp_path, text)).arguments}
    assert roles == {"x": "in", "y": "out", "n": ""}


def test_numbers_that_are_no_sizes_differ_so_that_none_takes_anothers_place(tmp_path: Path) -> None:
    text = "__global__ void k(float* y, float a, bool b, double c, int n) { y[threadIdx.x] = a * c + n; }"
    make_task("mine", tmp_path, written(tmp_path, text))
    assert 'args=["y", 2.0, True, Cast(5.0, "fp64"), "n"]' in (tmp_path / "mine" / "mine.py").read_text()


def test_one_of_several_kernels_is_taken_by_name(evo: Evo, tmp_path: Path) -> None:
    two = SAXPY + "__global__ void other(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 1; }"
    assert "has 2 kernels: saxpy, other" in evo("new", "two", "--from", str(written(tmp_path, two))).err
    assert evo("new", "two", "--from", str(tmp_path / "mine.cu"), "--kernel", "sax").code == 2
    assert evo("new", "two", "--from", str(tmp_path / "mine.cu"), "--kernel", "saxpy").code == 0
    assert "--from FILE.cu" in evo("new", "three", "--kernel", "saxpy").err


@pytest.mark.nvcc
def test_a_tiled_product_with_host_code_is_green_once_its_formula_is_there(evo: Evo, tmp_path: Path) -> None:
    assert evo("new", "product", "--from", str(written(tmp_path, GEMM))).code == 0
    task = tmp_path / "tasks" / "product" / "task.py"
    right = 'return tensors["A"] @ tensors["B"]'
    task.write_text(re.sub(r"raise NotImplementedError.*", right, task.read_text()))
    tried = evo("try", "product", "TILE=8", "--shape", "M=19,N=33,K=21", "--device", "emulator", "--json")
    assert json.loads(tried.out)["outcome"] == "GREEN", tried.out


def test_what_cannot_be_written_is_said(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    script = tmp_path / "tune.py"
    script.write_text("import kernel_tuner\n")
    for words in (["new", "k"], ["new", "k", "--from", str(written(tmp_path, SAXPY))]):
        said = evo(*words, "--to", str(tmp_path / "file"))
        assert said.code == 3
        assert re.match(r"error: cannot write .*file.*\nhint: choose another folder with --to", said.err)
