"""`evo.tune` and tasks that are given in Python: what is understood, what goes on, a search of the page."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import ROOT, Evo

import evo as public
from evo.api.declared import Declared, declared
from evo.api.given import Given, given, identity, text_of
from evo.api.kernel_task import GIVEN, KernelFacts, KernelTask, called
from evo.api.running import adopted
from evo.errors import NothingFound, UsageError
from evo.report.screen import screen
from evo.store import Store
from evo.study import Study
from evo.task import load_task
from evo.template import Cast

ADD = """
__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * block_size_x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""
ROWS = """
__global__ void scaled(const __half* x, const int* at, __half* y, double* sums, float a,
                       int rows, int columns) {}
"""


def facts(
    tmp_path: Path, source: str, inputs: dict[str, Any], reference: Callable[..., Any], **more: Any
) -> Declared:
    path = tmp_path / "kernel.cu"
    path.write_text(source)
    return declared(path, inputs, more.get("sizes", {}), reference, more.get("args"))


# ---- what is understood of tensors and a signature


def test_sizes_and_outputs_follow_from_tensors(tmp_path: Path) -> None:
    found = facts(tmp_path, ADD, {"a": torch.ones(50), "b": np.ones(50, np.float32)}, lambda a, b: a + b)
    assert found.sizes == {"n": 50}
    assert {name: (t.role, t.dimensions, t.dtype) for name, t in found.tensors.items()} == {
        "a": ("in", ("n",), "fp32"), "b": ("in", ("n",), "fp32"), "c": ("out", ("n",), "fp32"),
    }  # fmt: skip
    assert found.args == ["a", "b", "c", Cast("n", "i32")]
    assert set(found.examples) == {"a", "b"}


@pytest.mark.parametrize("ones", [torch.ones, lambda n: np.ones(n, np.float32)])
def test_an_order_of_arguments_serves_where_the_signature_cannot_be_read(tmp_path: Path, ones: Any) -> None:
    source = ADD.replace("const float* a, const float* b", "CONST_POINTERS(float, a, b)")
    with pytest.raises(UsageError, match="not plain"):
        facts(tmp_path, source, {"a": ones(50), "b": ones(50)}, lambda a, b: a + b)
    inputs = {"a": ones(50), "b": ones(50), "c": public.Out(50, dtype="fp32")}
    found = facts(tmp_path, source, inputs, lambda a, b: a + b, args=["a", "b", "c", 50])
    assert {name: (t.role, t.dtype) for name, t in found.tensors.items()} == {
        "a": ("in", "fp32"), "b": ("in", "fp32"), "c": ("out", "fp32"),
    }  # fmt: skip


def test_numbers_that_are_no_side_of_a_tensor_stay(tmp_path: Path) -> None:
    sides = {"rows": 6, "columns": 8}
    inputs = {"x": torch.ones(6, 8).half(), "at": torch.tensor([3, 9]).int(), "a": 2.5, **sides}
    found = facts(tmp_path, ROWS, inputs, lambda x, a: {"y": a * x, "sums": x.sum(1).double()})
    assert found.sizes == {"rows": 6, "columns": 8}
    assert found.numbers == {"a": 2.5}
    assert found.tensors["x"].dimensions == ("rows", "columns")
    assert (found.tensors["at"].dimensions, found.tensors["at"].between) == ((2,), (3, 10))
    assert (found.tensors["sums"].dimensions, found.tensors["sums"].dtype) == (("rows",), "fp64")
    assert found.args
    assert found.args[4] == Cast(2.5, "fp32")


def test_declared_tensors_need_no_example(tmp_path: Path) -> None:
    inputs = {"a": public.In("n"), "b": public.In("n"), "c": public.Out("n")}
    found = facts(tmp_path, ADD, inputs, torch.add, sizes={"n": 9})
    assert (found.sizes, found.examples, found.fixed) == ({"n": 9}, {}, ())


def test_a_kernel_that_takes_no_size_has_it_in_its_code(tmp_path: Path) -> None:
    source = "__global__ void twice(const float* x, float* y) {}"
    found = facts(tmp_path, source, {"x": torch.ones(32)}, lambda x: 2 * x)
    assert (found.sizes, found.fixed) == ({"size_32": 32}, ("size_32",))
    assert found.tensors["y"].dimensions == ("size_32",)


X, H, AT = torch.ones(8), torch.ones(6, 6).half(), torch.ones(2).int()


@pytest.mark.parametrize(
    ("source", "inputs", "reference", "said"),
    [
        (ADD, {"a": X}, lambda a: a, "input b is missing"),
        (ADD, {"a": X, "b": X, "d": X}, torch.add, "the kernel has no argument d"),
        (ADD, {"a": X, "b": X.double()}, torch.add, "b is of torch.float64, the kernel's argument of fp32"),
        (ADD, {"a": X, "b": [1.0]}, torch.add, "input b is a list"),
        (ADD, {"a": X, "b": torch.tensor(1.0)}, torch.add, "input b has no dimension"),
        (ADD, {"a": X, "b": X}, lambda a, b: (a, b), "the reference gives 2 tensors"),
        (ADD, {"a": X, "b": X}, lambda a, b: {"out": a + b}, "the reference gives out"),
        (ADD, {"a": X, "b": X}, lambda *_: None, "the reference gives nothing"),
        (ADD, {"a": X, "b": X}, lambda *_: 2.0, "the reference gives c as a number"),
        (ADD, {"a": X, "b": X}, lambda a, b: (a + b).numpy(), "the reference gives c as a NumPy array"),
        (ADD, {"a": X, "b": X}, lambda one: one, "the reference takes one"),
        (ADD, {"a": public.In("n"), "b": public.In("n"), "c": public.Out("n")}, torch.add, "how large n is"),
        (ADD, {"a": public.In("n"), "b": public.In("n"), "n": 9}, torch.add, "the shape of c"),
        (ROWS, {"x": H, "at": AT, "a": 1.0, "rows": 6, "columns": 6}, lambda x: {"y": x, "sums": x[0]},
         "x has a side of 6: rows or columns"),
        (ROWS, {"x": H, "at": AT, "a": 1.0, "rows": 6}, lambda x: x, "how large columns is"),
        ("__global__ void k(const float* x, int n) {}", {"x": X}, lambda x: x, "the kernel writes nothing"),
        ("struct S {}; __global__ void k(S* x) {}", {"x": X}, torch.neg, "'S\\* x' is not understood"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_kernel_is_refused(
    tmp_path: Path, source: str, inputs: dict[str, Any], reference: Callable[..., Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        facts(tmp_path, source, inputs, reference)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        ({}, 'sizes={"rows": 100, "columns": 77}, if x has them'),
        ({"rows": 100}, 'sizes={"columns": 77}, if x has them'),
    ],
)
def test_a_size_that_is_not_said_is_asked_for_as_the_tensors_have_it(
    tmp_path: Path, told: dict[str, int], hint: str
) -> None:
    with pytest.raises(UsageError, match="nothing says how large") as caught:
        facts(tmp_path, ROWS, {"x": torch.ones(100, 77).half(), "at": AT, "a": 1.0, **told}, lambda x: x)
    assert caught.value.hint == f'{hint}; where sides are equal, declare it: "x": In("rows", "columns")'


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("c[i] = a", "c[i = a", 3, 'expected a "]"'),
        ("float* c", "flaot* c", 1, 'identifier "flaot" is undefined'),
        ("int n)", "int n", 1, 'expected a ")"'),
    ],
)
def test_a_source_that_does_not_compile_is_refused_with_the_compilers_words(
    old: str, new: str, line: int, said: str
) -> None:
    source = ADD.strip().replace(old, new)
    with pytest.raises(UsageError, match="the kernel does not compile") as caught:
        public.tune(
            source, tune_params={"block_size_x": [64]}, inputs={"a": X, "b": X}, reference=torch.add, grid=1
        )
    assert f"add.cu({line}): error: {said}" in caught.value.message
    assert source.splitlines()[line - 1].strip() in caught.value.hint


@pytest.mark.nvcc
def test_a_length_that_a_wrong_reference_gave_is_said(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "tune_params": {"block_size_x": [64]}, "inputs": {"a": X, "b": X}, "workers": 1, "budget": 60,
        "grid": "ceil(n / block_size_x)", "device": "emulator", "database": tmp_path / "evo.db",
    }  # fmt: skip
    with pytest.raises(NothingFound) as caught:
        public.tune(ADD, **told, reference=lambda a, b: (a + b)[:5])
    assert caught.value.hint.endswith("c has the shape (5,) because the reference gives it")


def test_a_source_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    told: dict[str, Any] = {"tune_params": {}, "inputs": {}, "reference": torch.add, "grid": 1}
    with pytest.raises(UsageError, match=r"cannot read the kernel: .*none\.cu"):
        public.tune(tmp_path / "none.cu", **told)
    with pytest.raises(UsageError, match="the source has 2 kernels: add, other"):
        public.tune(ADD + "__global__ void other() {}", **told)


def test_a_reference_gets_what_its_parameters_are_named_after() -> None:
    x, y = torch.ones(2), torch.full((2,), 3.0)
    assert torch.equal(called(lambda b, n: b * n, {"a": x, "b": y}, {"n": 2}), 2 * y)
    assert torch.equal(called(lambda p, q: p - q, {"a": x, "b": y}, {}), x - y)
    assert torch.equal(called(torch.sub, {"a": x, "b": y}, {"n": 2}), x - y)


def test_the_tensors_that_came_with_a_kernel_are_a_family_of_any_size(tmp_path: Path) -> None:
    found = facts(tmp_path, ADD, {"a": torch.arange(5.0), "b": torch.ones(5)}, lambda a, b: a + b)
    torch.save(found.examples, tmp_path / "examples.pt")
    examples = tmp_path / "examples.pt"
    task = KernelFacts("add", found.sizes, "fp32", found.tensors, torch.add, {}, examples).task()
    assert isinstance(task, KernelTask)
    assert GIVEN in task.families.names
    few = task.inputs(task.example.replace(n=7), GIVEN, 1, "cpu")
    assert few["a"].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert list(task.timing_inputs) == ["normal", GIVEN]
    assert torch.equal(task.timing_tensors(task.example, GIVEN, 1, "cpu")["a"], torch.arange(5.0))
    exact = task.reference(task.example, {"a": torch.ones(5), "b": torch.ones(5)})["c"]
    assert (exact.dtype, exact.tolist()) == (torch.float64, [2] * 5)


# ---- tasks that are in no file


def doubled() -> public.Task:
    class Double(public.Task):
        name, sizes = "double", {"n": 8}
        tensors = {"x": public.In("n"), "y": public.Out("n")}  # noqa: RUF012

        def compute(self, problem: Any, tensors: Any) -> Any:  # noqa: ARG002
            return 2 * tensors["x"]

    return Double()


def test_another_process_can_load_a_task_that_is_in_no_file() -> None:
    found = given(doubled())
    assert isinstance(found, Given)
    code = "import sys; from evo.task import load_task; print(load_task('double', sys.argv[1:]).example.key)"
    words = [sys.executable, "-c", code, str(found.folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "double n=8 fp32\n"


def test_a_task_that_evo_loaded_keeps_its_folder() -> None:
    toys = ROOT / "tests/toys"
    assert given(load_task("saxpy", [toys])) == toys / "saxpy"


def test_what_is_given_again_is_the_same_and_another_is_not() -> None:
    def text(value: object) -> str:
        return text_of(identity(value), [])

    assert text(doubled()) == text(doubled())
    two, three = (lambda x: 2 * x), (lambda x: 3 * x)
    again = eval("lambda x: 2 * x")
    assert text(two) == text(again) != text(three)
    assert text({"x": torch.ones(3)}) == text({"x": torch.zeros(3)}) != text({"x": torch.ones(4)})
    assert text(torch.add) == text(torch.add) != text(torch.sub)
    assert "two, three = " in text_of(0, [two])


def test_a_lambda_after_the_source_in_one_call_is_kept(tmp_path: Path) -> None:
    """`inspect.getsource` cannot read what begins on the last line of a text in quotes."""
    script = tmp_path / "script.py"
    script.write_text('call = (lambda text, f: f)("""\nkernel\n""", lambda a: a + 1)\n')
    names = runpy.run_path(str(script))
    assert text_of(0, [names["call"]]).startswith("# ")


def test_only_python_goes_on_with_what_is_in_no_file(tmp_path: Path, evo: Evo) -> None:
    task = doubled()
    record = Study("mine", task.example, "emulator", "L4", ("double",), 9.0, given="# 1", folders=("/gone",))
    with Store(tmp_path / "runs/evo.db") as store:
        store.create(record)
    said = evo("resume", "mine")
    assert (said.code, said.out) == (2, "")
    assert "error: the task of study mine was given in Python, and is in no file" in said.err
    assert "hint: go on from Python" in said.err
    assert evo("studies").code == 0
    database, silent = str(tmp_path / "runs/evo.db"), screen(False)
    moved = adopted(replace(record, given="# 1\nx", folders=(str(tmp_path),)), database, silent)
    assert moved
    with Store(database) as store:
        assert store.study("mine").folders == moved.folders == (str(tmp_path),)
    with pytest.raises(UsageError, match="study mine searches another task, or has other arguments"):
        adopted(replace(record, given="# 2"), database, silent)
    assert adopted(replace(record, name="other"), database, silent) is None


# ---- searches


@pytest.mark.nvcc
def test_the_kernel_of_the_page_on_python_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/python.md").read_text()
    told: dict[str, Any] = {"__name__": "__main__"}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], told)
    study = told["study"]
    assert set(study.trials()["status"]) == {"GREEN"} or "TIMED" in set(study.trials()["status"])
    assert "add: 3 points, 3 feasible" in capsys.readouterr().err
    again = {name: told[name] for name in ("a", "b")}
    same = public.tune(
        told["SOURCE"], tune_params={"block_size_x": [64, 128, 256]}, inputs=again, budget="5m",
        reference=eval("lambda a, b: a + b"), grid="ceil(n / block_size_x)", study=study.name, progress=False,
    )  # fmt: skip
    assert len(same.trials()) == 3


@pytest.mark.parametrize(
    ("sides", "said", "hint"),
    [
        ({"grid": 1.5}, "grid is 1.5, no whole number", 'grid="ceil(n / block_size_x)"'),
        ({"grid": (1.5,)}, "grid is 1.5, no whole number", 'grid="ceil(n / block_size_x)"'),
        ({"grid": None}, "grid is None", 'grid="ceil(n / block_size_x)"'),
        ({"grid": "64"}, 'grid is the text "64"', "without quotes: grid=64"),
        ({"grid": [8, "64"]}, 'grid is the text "64"', "without quotes: grid=64"),
        ({"grid": -1}, "grid is -1, no whole number from 1 on", "a whole number from 1 on"),
        ({"grid": True}, "grid is a truth value", "a whole number from 1 on"),
        ({"grid": ()}, "grid has 0 sides", "one, two or three"),
        ({"grid": {"x": 1}}, "grid is a dict", "a whole number from 1 on"),
        ({"grid": 2**40}, "grid is 1099511627776", "a whole number from 1 on"),
        ({"grid": "n / block_size_x"}, "grid is n / block_size_x = 1.5625", "ceil(n / block_size_x)"),
        ({"grid": "n // 1000"}, r"grid is (0, 1, 1) for 100", "every side is at least 1"),
        ({"grid": "ceil(n / blok)"}, "unknown name blok", "parameters and sizes: block_size_x, n"),
        ({"grid": lambda: 1}, "grid is a function that cannot take", "lambda p, problem"),
        (
            {"grid": lambda p, at: at["m"] // p.block_size_x},
            "grid failed at {'block_size_x': 64}",
            "lambda p, problem",
        ),
        ({"grid": lambda p, _: (p.block_size_x, None)}, "grid is None", "a whole number from 1 on"),
        ({"block": 0}, "block is 0, no whole number from 1 on", 'block="block_size_x"'),
        ({"block": [64, None]}, "block is None", 'block="block_size_x"'),
        ({"block": float("nan")}, "block is nan", 'block="block_size_x"'),
    ],
)
def test_a_grid_or_block_that_cannot_be_is_said_before_the_search(
    tmp_path: Path, sides: dict[str, Any], said: str, hint: str
) -> None:
    inputs = {"a": torch.ones(100), "b": torch.ones(100)}
    told: dict[str, Any] = {"tune_params": {"block_size_x": [64]}, "inputs": inputs}
    told |= {"reference": torch.add, "grid": "ceil(n / block_size_x)", "device": "emulator"}
    with pytest.raises(UsageError) as caught:
        public.tune(ADD, **told | sides, database=tmp_path / "evo.db")
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert not (tmp_path / "evo.db").exists()


def counted(n: int) -> torch.Tensor:
    return torch.arange(n)


@pytest.mark.nvcc
def test_a_kernel_that_reads_nothing_is_tuned_for_some_trials_and_more(tmp_path: Path) -> None:
    count = "__global__ void count(int* y, int n) {\n  int i = blockIdx.x * side + threadIdx.x;\n"
    told: dict[str, Any] = {
        "tune_params": {"side": [64, 128]}, "inputs": {"y": public.Out("n"), "n": 300}, "block": "side",
        "reference": counted, "grid": "ceil(n / side)", "device": "emulator", "workers": 1,
        "database": tmp_path / "evo.db",
    }  # fmt: skip
    for until, trials in ((1, 1), (1, 1), (2, 2)):
        found = public.tune(f"{count}  if (i < n) y[i] = i;\n}}", study="count", until=until, **told)
        assert list(found.trials()["status"]) == ["GREEN"] * trials
    with pytest.raises(NothingFound, match="RED"):
        public.tune(f"{count}  if (i < n) y[i] = i + 1;\n}}", **told)


@pytest.mark.slow  # three searches
@pytest.mark.nvcc
def test_a_wrong_kernel_and_a_task_of_a_script(tmp_path: Path) -> None:
    wrong = ADD.replace("if (i < n) ", "")
    told: dict[str, Any] = {
        "tune_params": {"block_size_x": [64]}, "inputs": {"a": X, "b": X}, "reference": torch.add,
        "grid": "ceil(n / block_size_x)", "device": "emulator", "database": tmp_path / "evo.db", "workers": 1,
    }  # fmt: skip
    with pytest.raises(NothingFound, match="RED out of bounds"):
        public.tune(wrong, **told)
    trial = public.load_study("add-1", database=tmp_path / "evo.db").trial(0)
    assert (trial.status, trial.source.count("#define block_size_x 64")) == ("RED", 1)
    assert f" add.cu:{wrong[: wrong.index('c[i]')].count(chr(10)) + 1} " in trial.reason
    (tmp_path / "double").mkdir()
    (tmp_path / "double/double.cu").write_text(
        "__global__ void twice(const float* x, float* y, int n) {\n"
        "  int i = blockIdx.x * block_size_x + threadIdx.x;\n  if (i < n) y[i] = 2 * x[i];\n}\n"
    )
    (tmp_path / "double/double.py").write_text(
        "from evo.template import template\n"
        'TEMPLATE = template({"block_size_x": [64]}, grid="ceil(n / block_size_x)")\n'
    )
    found = public.search(
        doubled(), budget="5m", templates=tmp_path, device="emulator", workers=1, database=tmp_path / "evo.db"
    )
    assert found.best
    assert torch.equal(found.best.kernel(X), 2 * X)
