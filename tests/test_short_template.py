"""Templates in the short form: macros, holes, numbers; and what their authors may get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_short_form import GOOD, LIMITS, TOYS, made, toy

from evo.errors import BadTemplate, UsageError
from evo.task import Task
from evo.template import load_template
from evo.template.macros import kernels_in

TAKES = "const float* x, float* y, int n"


def doubling(folder: Path, source: str, python: str) -> Task:
    """A task with the template `mine` of that source, and of `TEMPLATE = <python>`."""
    task = made(folder, GOOD["sizes"], GOOD["tensors"], "x['x'] * 2")
    (folder / "own" / "mine.cu").write_text(source + "\n")
    (folder / "own" / "mine.py").write_text(f"from evo.template import template\n\nTEMPLATE = {python}\n")
    return task


def test_a_plain_source_gets_its_tunables_as_macros() -> None:
    task = toy("saxpy")
    template = load_template(task, "saxpy", TOYS)
    candidate = template.candidate({"block_size_x": 256, "per_thread": 2}, task.example)
    assert "#define block_size_x 256\n#define per_thread 2\n" in candidate.source
    assert 'extern "C" __global__ void saxpy' in candidate.source
    assert candidate.launch.grid == (-(-task.example["N"] // 512), 1, 1)
    assert candidate.launch.block == (256, 1, 1)
    assert [arg.kind for arg in candidate.launch.args] == ["buffer", "buffer", "scalar"]
    assert template.space.feasible(LIMITS, task.example).count == 12


def test_a_source_with_holes_gets_sizes_and_derived_values() -> None:
    task = toy("rms_norm")
    template = load_template(task, "cta_row", TOYS)
    candidate = template.candidate({"threads": 128}, task.problem("5,70"))
    assert "using Element = __half;" in candidate.source
    assert candidate.launch.grid == (5, 1, 1)


def test_kernels_are_found_by_name() -> None:
    source = """
    // __global__ void not_this(int);
    template <int N> __global__ void nor_this(float* x) {}
    extern "C" __global__ void __launch_bounds__(32 * (2 + 1), 2) first(float* x) {}
    __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) second(int) {}
    """
    assert kernels_in(source) == ["first", "second"]


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("template(tune_params={'a': [1]}, grid='n')", "there is no block"),
        ("template(tune_params={'a': []}, grid='n', block=32)", "parameter a has no values"),
        ("template(tune_params={'a': [1]}, grid='n', block=32, defaults={'b': 1})", "which is no parameter"),
        ("template(tune_params={'a': [1]}, grid='m', block=32)", "unknown name m in: m"),
        ("template(tune_params={'a': [1]}, grid='n +', block=32)", "malformed expression"),
        ("template(tune_params={'a': [1]}, grid=0, block=32)", "grid is 0, no whole number from 1 on"),
        ("template(tune_params={'a': [1]}, grid='n - n', block=32)", "empty launch"),
        ("template(tune_params={'a': [1]}, grid=None, block=32)", "grid is None"),
        ("template(tune_params={'a': [1]}, grid=1, block={'x': 32})", "block is a dict"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, args=['z'])", "names a buffer z"),
        ("template(tune_params={'shared': [0, 1]}, grid=1, block=32)", "no macro can be named shared"),
        ("template(tune_params={'x': [1]}, grid=1, block=32)", "no macro can be named x"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, restrictions=['a < c'])", "there is no"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, entry='other')", "no function other"),
        ("template(tune_params={'a': 1}, grid=1, block=32)", "parameter a has no list of values"),
        ("template(tune_params=[('a', [1])], grid=1, block=32)", "tune_params is no dict"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, restrictions='a < 2')", "is no list"),
        (
            "template(tune_params={'a': [1]}, grid=1, block=32, restrictions=[lambda a, b: a < b])",
            "restriction <lambda> failed: TypeError",
        ),
        ("template(tune_params={'a': [1]}, grid_size=1, block=32)", "argument 'grid_size'"),
        ("template(tune_params={'a': [1]}, grid='n / 3', block=32)", "grid is n / 3 = 21.333"),
        ("template(tune_params={'a': [1]}, grid=lambda p, at: at['n'] / 3, block=32)", "grid is 21.333"),
        ("template(tune_params={'a': [1]}, grid=1, block=(8, 1.5))", "block is 1.5"),
        ("template(tune_params={'a': [0]}, grid='n // a', block=32)", "by zero, in: n // a"),
        ("template(tune_params={'a': ['1']}, grid='n // a', block=32)", "in: n // a"),
        ("template(tune_params={'a': [1]}, grid=7.5, block=32)", "grid is 7.5, no whole number"),
        ("template(tune_params={'a': [1]}, grid=[1, 1, 1, 1], block=32)", "grid has 4 sides"),
        ("template(tune_params={'a': [1]}, grid='ceil(n', block=32)", "malformed expression: ceil(n"),
        ("template(tune_params={'a': [1]}, grid=1, block='threads')", "unknown name threads in: threads"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, args=['n', 'x', 'y'])", "n is a number"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, args=['x', 'n', 'y'])", "n is a number"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, args=['y', 'x', 'n'])", "the kernel writes"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, args=['x', 'y'])", "k takes 3 arguments"),
        ("template(tune_params={'a': [1]}, grid=1, block=32, args=['x', 'y', 0.5])", "is given as fp32"),
        ("7", "does not define SPACE"),
    ],
)
def test_a_mistake_in_a_template_is_said_with_its_file(tmp_path: Path, python: str, said: str) -> None:
    task = doubling(tmp_path, f"__global__ void k({TAKES}) {{}}", python)

    def use() -> None:
        template = load_template(task, "mine", (tmp_path,))
        template.space.feasible(LIMITS, task.example)
        template.candidate(template.space.default, task.example)

    with pytest.raises(UsageError) as caught:
        use()
    assert said in caught.value.message
    assert "mine." in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("source", "said", "hint"),
    [
        ("__global__ void k(const double* x, float* y, int n) {}", "double* x`: x is in fp32", "one type"),
        ("__global__ void k(float* x, float* y, long long n) {}", "n is given as i32", 'Cast("n", "i64")'),
        ("__global__ void k(float* x, float* y, float n) {}", "n is given as i32", 'Cast("n", "fp32")'),
        ("__global__ void k(float* y) {}", "k takes 1 arguments: float* y; it is given 3: x, y, n", "order"),
        (f"#define a 4\n__global__ void k({TAKES}) {{}}", "1: a is defined here", "#ifndef a"),
        (f"constexpr int a = 4;\n__global__ void k({TAKES}) {{}}", "1: a is", "#ifndef a"),
        (f"template <int N>\n__global__ void k({TAKES}) {{}}", "2: k is a C++", "macros"),
        (f"// k(1)\nvoid k({TAKES}) {{}}", "2: k is no kernel", "__global__ void k"),
    ],
)
def test_a_source_that_its_python_file_does_not_fit_is_said(
    tmp_path: Path, source: str, said: str, hint: str
) -> None:
    task = doubling(tmp_path, source, "template({'a': [1]}, grid=1, block=32, entry='k')")
    with pytest.raises(BadTemplate) as caught:
        load_template(task, "mine", (tmp_path,))
    assert said in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "source",
    [
        '#ifndef a\n#define a 4\n#endif\n#define b a\nextern "C" __global__ void __launch_bounds__(32)\n'
        "k(const float *__restrict__ x, float* __restrict__ const y, const int n) {}",
        "#if !defined(a)\n#define a 4\n#endif\n__global__ void k(float* x, float y[], unsigned n) {}",
        "typedef float4 Four;\n__global__ void k(const Four* x, uint2* y, /* , */ int n) {}",
        f'#define KERNEL extern "C" __global__\nKERNEL void k({TAKES}) {{}}',
        "struct Two { int a; };\n__global__ void k(Span<float, 2> x, float* y, Two n) {}",
    ],
)
def test_a_source_that_may_be_right_is_left_to_the_compiler(tmp_path: Path, source: str) -> None:
    task = doubling(tmp_path, source, "template({'a': [1]}, grid=1, block=32, entry='k')")
    assert load_template(task, "mine", (tmp_path,)).entry == "k"


def test_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    task = doubling(tmp_path, f"__global__ void k({TAKES}) {{}}", "None")
    (tmp_path / "own" / "mine.py").write_text(
        "import numpy as np\nfrom evo.template import template\n"
        "TEMPLATE = template(tune_params={'a': np.arange(1, 4)}, block=lambda p, problem: np.int64(32),\n"
        "    grid=lambda p, problem: np.ceil(problem['n'] / 32), restrictions=[lambda p: p.a != 2])\n"
    )
    template = load_template(task, "mine", (tmp_path,))
    assert template.candidate({"a": 3}, task.example).launch.grid == (2, 1, 1)
    assert template.space.feasible(LIMITS, task.example).count == 2
