"""Tasks of one function and templates of four lines: what follows from them, and that mistakes are said."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from evo.errors import BadTemplate, Red, UsageError
from evo.gate.tolerance import compare
from evo.gpu import KNOWN_GPUS, Limits
from evo.space.expression import Expression
from evo.task import Task, load_task
from evo.task.computed import check_tensors

TOYS = (Path(__file__).parent / "toys",)
LIMITS = Limits.of(KNOWN_GPUS["L4"])


def toy(name: str) -> Task:
    return load_task(name, TOYS)


# ------------------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("bx * by <= 1024", True),
        ("32 <= bx * by <= 256", True),
        ('p["bx"] % 32 == 0 and not p.by > 8', True),
        ("by == 0 or by % 2 == 0 or by == 8", True),
        ("bx in (64, 128) and by not in [1, 2]", False),
        ("ceil(n / (bx * by))", 8),
        ("max(bx, by, 3) if by < bx else 0", 64),
        ("-(-n // bx)", 16),
    ],
)
def test_an_expression_is_the_same_for_a_number_and_for_columns(text: str, value: object) -> None:
    expression = Expression(text)
    assert expression({"bx": 64, "by": 2, "n": 1000}) == value
    column = expression({"bx": np.array([64, 32]), "by": np.array([2, 4]), "n": 1000})
    assert np.broadcast_to(column, (2,))[0] == value


@pytest.mark.parametrize(
    "text", ["__import__('os')", "bx.__class__", "[x for x in y]", "f(1)", "bx <", "lambda: 1", "bx[0]", ""]
)
def test_an_expression_is_parsed_and_never_run(text: str) -> None:
    with pytest.raises(UsageError):
        Expression(text)
    with pytest.raises(UsageError, match="unknown name bz"):
        Expression("bx < bz")({"bx": 1})


# --------------------------------------------------------------------------------------------- the task


def test_every_family_shows_a_wrong_epsilon() -> None:
    """But for huge numbers, beside which it is none, and results below the normal numbers of fp16."""
    task = toy("rms_norm")
    for dtype in task.dtypes:
        problem = task.problem("33,65", dtype)
        blind = {"huge", "tiny"} if dtype == "fp16" else {"huge"}
        for family in set(task.families.names) - blind:
            for seed in range(3):
                x = task.inputs(problem, family, seed, "cpu")
                exact, honest = task.reference(problem, x)["y"], task.honest(problem, x)["y"]
                for epsilon in (1e-5, 1e-6, 0.0):
                    wide = x["x"].float()
                    factor = (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()
                    out = (wide * factor * x["gamma"].float()).nan_to_num().to(x["x"].dtype)
                    if epsilon == 1e-5:
                        compare("y", out, exact, honest, task.tolerance)
                    else:
                        with pytest.raises(Red):
                            compare("y", out, exact, honest, task.tolerance)


@pytest.mark.parametrize("columns", [1, 7, 999])
def test_a_sum_may_be_added_in_any_order(tmp_path: Path, columns: int) -> None:
    tensors = 'tensors = {"x": In("rows", "columns"), "y": Out("rows")}'
    task = made(tmp_path, 'sizes = {"rows": 8, "columns": 8}', tensors, "x['x'].sum(-1)")
    for seed in range(10):
        for family in task.families.names:
            for rows in (1, 3):
                problem = task.problem(f"{rows},{columns}")
                x = task.inputs(problem, family, seed, "cpu")
                exact, honest = task.reference(problem, x)["y"], task.honest(problem, x)["y"]
                one_by_one = torch.zeros(rows)
                for column in x["x"].T:
                    one_by_one = one_by_one + column
                for out in (x["x"].sum(-1), x["x"].flip(-1).sum(-1), one_by_one):
                    compare("y", out, exact, honest, task.tolerance)
    if columns > 1:  # the last term is lost
        with pytest.raises(Red):
            compare("y", x["x"][:, :-1].sum(-1), exact, honest, task.tolerance)


def test_an_output_that_overflows_its_type_allows_nothing(tmp_path: Path) -> None:
    tensors = 'dtypes, tensors = ("fp16",), {"x": In("n"), "y": Out("n")}'
    task = made(tmp_path, 'sizes = {"n": 8}', tensors, "x['x'] * 1e9")
    x = task.inputs(task.example, "normal", 0, "cpu")
    exact, honest = task.reference(task.example, x)["y"], task.honest(task.example, x)["y"]
    with pytest.raises(Red, match="no limit"):
        compare("y", torch.zeros_like(honest), exact, honest, task.tolerance)


def test_inputs_of_every_family_leave_fp16_outputs_finite(tmp_path: Path) -> None:
    tensors = 'dtypes, tensors = ("fp16", "fp32"), {"a": In("m", "k"), "b": In("k", "m"), "c": Out("m", "m")}'
    task = made(tmp_path, 'sizes = {"m": 40, "k": 1000}', tensors, "x['a'] @ x['b']")
    for family in task.families.names:
        for seed in range(3):
            x = task.inputs(task.example, family, seed, "cpu")
            assert task.honest(task.example, x)["c"].isfinite().all()
            if family in ("huge", "tiny"):  # by how much depends on the type
                continue
            wide = task.inputs(task.problem("40,1000", "fp32"), family, seed, "cpu")
            for name, values in x.items():  # the same values, or smaller by one power of two
                part = float(
                    (values.float() / wide[name])[wide[name].abs() > wide[name].abs().max() / 64].median()
                )
                assert 2**-8.1 <= part <= 2**0.1  # rounded to fp16
                assert torch.allclose(values.float(), wide[name] * 2 ** round(math.log2(part)), 1e-3, 1e-6)


def test_a_gelu_is_off_by_what_an_error_function_is(tmp_path: Path) -> None:
    """In fp32 1 + erf(x) loses what is left far below 0, and the erf of CUDA is off by two units; the tail
    of a normal distribution has it. Both were RED."""
    tensors = 'tensors = {"x": In("n", 1), "y": Out("n", 1)}'
    task = made(tmp_path, 'sizes = {"n": 3}', tensors, "torch.nn.functional.gelu(x['x'])")
    for lowest in (-2.3, -5.0, -10.0):
        x = torch.tensor([[lowest], [lowest - 0.1], [lowest - 0.2]])
        exact, honest = task.reference(task.example, {"x": x})["y"], task.honest(task.example, {"x": x})["y"]
        of_erf = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)) * (1 + 2.0**-24))
        of_tail = (0.5 * x.double() * torch.erfc(-x.double() / math.sqrt(2))).float()
        for y in (of_erf, of_tail):
            compare("y", y, exact, honest, task.tolerance)
        with pytest.raises(Red):
            compare("y", honest + 1e-3 * x, exact, honest, task.tolerance)


@pytest.mark.parametrize("count", [36, 129, 1000])
def test_what_is_added_to_a_buffer_may_be_added_one_by_one(tmp_path: Path, count: int) -> None:
    tensors = 'tensors = {"x": In("n"), "s": InOut(1)}'
    task = made(tmp_path, f'sizes = {{"n": {count}}}', tensors, "x['s'] + x['x'].sum()")
    for family in ("normal", "alike", "tiny"):
        for seed in range(8):
            x = task.inputs(task.example, family, seed, "cpu")
            exact, honest = task.reference(task.example, x)["s"], task.honest(task.example, x)["s"]
            sum_so_far = x["s"].clone()
            for term in x["x"]:
                sum_so_far += term
            compare("s", sum_so_far, exact, honest, task.tolerance)


def test_a_mistake_in_compute_is_said_of_compute_for_fp16_too(tmp_path: Path) -> None:
    tensors = 'dtypes, tensors = ("fp16",), {"x": In("n"), "y": Out("n")}'
    task = made(tmp_path, 'sizes = {"n": 8}', tensors, "x['z']")
    with pytest.raises(BadTemplate, match=r"compute failed: KeyError.*\n.*tensors: x"):
        check_tensors(task, tmp_path / "own" / "task.py")


def test_a_broken_expression_is_told_in_words() -> None:
    with pytest.raises(UsageError, match="malformed expression") as caught:
        Expression("ceil(n")
    assert caught.value.hint == "'(' was never closed"


def test_truth_values_are_outputs_too(tmp_path: Path) -> None:
    tensors = 'tensors = {"x": In("n"), "y": Out("n", dtype="bool")}'
    task = made(tmp_path, 'sizes = {"n": 64}', tensors, "x['x'] > 0")
    check_tensors(task, tmp_path / "own" / "task.py")


def test_kernels_are_timed_on_rows_without_traits() -> None:
    task = toy("rms_norm")
    timed = task.timing_tensors(task.example, "normal", 1, "cpu")["x"]
    gated = task.inputs(task.example, "normal", 1, "cpu")["x"]
    assert (gated == 0).all(-1).any()
    assert not (timed == 0).all(-1).any()


def test_rows_are_apart_where_the_task_says_so() -> None:
    task = toy("rms_norm")
    problem = task.problem("3,5", "fp32")
    (relation,) = task.relations(problem)
    x = task.inputs(problem, "normal", 0, "cpu")
    before, after = task.honest(problem, x), task.honest(problem, relation.change(x))
    expected = relation.expected(before)["y"]
    assert expected[-1].isnan().all()
    assert torch.equal(expected[:-1], after["y"][:-1].double())
    assert not torch.equal(before["y"][-1], after["y"][-1])


def test_integers_have_their_range_and_are_exact(tmp_path: Path) -> None:
    tensors = 'tensors = {"x": In("n", dtype="i64", between=(0, "bins")), "counts": Out("bins", dtype="i32")}'
    body = "torch.bincount(x['x'], minlength=problem['bins'])"
    task = made(tmp_path, 'sizes = {"n": 100, "bins": 7}', tensors, body)
    problem = task.problem("100,7")
    for family in task.families.names:
        x = task.inputs(problem, family, 1, "cpu")
        assert x["x"].dtype == torch.int64
        assert 0 <= int(x["x"].min()) <= int(x["x"].max()) < 7
        assert task.honest(problem, x)["counts"].dtype == torch.int32
    check_tensors(task, tmp_path / "own" / "task.py")


# ------------------------------------------------------------------------------------ an author's mistakes


HEAD = """import torch
from evo import *

class Own(Task):
    name = "own"
"""
GOOD = {
    "sizes": 'sizes = {"n": 64}',
    "tensors": 'tensors = {"x": In("n"), "y": Out("n")}',
    "compute": "def compute(self, problem, x): return x['x'] * 2",
}


def written(folder: Path, *lines: str) -> Path:
    path = folder / "own" / "task.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(f"    {line}\n" for line in lines) + "\nTASK = Own()\n")
    return path


def made(folder: Path, sizes: str, tensors: str, result: str) -> Task:
    written(folder, sizes, tensors, f"def compute(self, problem, x): return {result}")
    return load_task("own", (folder,))


MISTAKES = {
    'name = "other"': "named other and its folder own",
    'name = ""': "has no name",
    "sizes = ()": "has no sizes",
    'sizes = "n"': "has no sizes",
    'sizes = ("n", "n")': "named twice",
    'sizes = {"n": 0}': "size n is 0",
    'sizes = {"n": 2.5}': "size n is 2.5",
    'sizes = {"n x": 4}': "a size is named",
    'sizes = ("n",)': "has no problem",
    'dtypes = ("float32",)': "no storage type 'float32'",
    'dtypes = "fp32"': "dtypes is 'fp32'",
    "dtypes = ()": "dtypes is",
    'families = ("normal", "peaky")': "families is a tuple",
    'timing_inputs = {"peaky": "sums of few terms"}': "does not begin with the plain family",
    'timing_inputs = {"normal": ""}': "timing input 'normal' does not say why",
    'timing_inputs = {"normal": "noise", "worst": "bad luck"}': "no timing input can be named worst",
    'timing_inputs = {"normal": "noise", "strange": "?"}': "unknown input family: strange",
    "def timing_tensors(self, problem, name, seed, device): return {}": "timing_tensors gives nothing",
    'families = Families(plain="")': "a family is named",
    'families = Families(plain="nice")': "unknown input family: nice",
    "tolerance = 1e-3": "tolerance is a number",
    'flags = {"fast": True}': "flag fast is a truth value",
    'flags = {"n": Flag()}': "is a size and a flag",
    'flags = {"fast": Flag(default=3)}': "cannot be its default",
    'baseline_groups = {"torch": "eager"}': "group torch is a text",
    'fixed = ("m",)': "fixed names m",
    'problems = {"small": ()}': "has no problem",
    'problems = {"small": ("64",)}': "small holds a text",
    'problems = {"small": (Problem("own", {"m": 4}, "fp32"),)}': "has sizes m",
    'problems = {"small": (Problem("other", {"n": 4}, "fp32"),)}': "is of task other",
    'problems = {"small": (Problem("own", {"n": 4}, "fp16"),)}': "is in fp16",
    'tensors = {"x": "n", "y": Out("n")}': "tensor x is a text",
    'tensors = {"x": In("m"), "y": Out("n")}': "has a dimension 'm'",
    'tensors = {"x": In("n", dtype="float"), "y": Out("n")}': "has a dtype 'float'",
    'tensors = {"x": In("n", between=(0, "m")), "y": Out("n")}': "has values up to 'm'",
    'tensors = {"x": In("n", between=(5, 5)), "y": Out("n")}': "has no value between",
    'tensors = {"x": In("n")}': "no buffer is written",
    'tensors = {"x": In("n"), "n": Out("n")}': "is a buffer and a size",
    'tensors = {"x y": In("n"), "y": Out("n")}': "a buffer is named",
    'tensors = {"x": In(), "y": Out("n")}': "has the shape ()",
    'tensors = {"x": In(0), "y": Out("n")}': "has the shape (0,)",
    "def buffers(self, problem): return [1]": "a buffer is a whole number",
    "def buffers(self, problem): return 1 / 0": "buffers failed: ZeroDivisionError",
    "def flop(self, problem): return 1.5": "flop gives 1.5",
    "def flop(self, problem): return 0": "flop gives 0",
    "def nbytes(self, problem): return problem.n": "nbytes failed",
    "def gate_problems(self, problem, tiles): return ()": "gives no problems",
    "def gate_problems(self, problem, tiles): return (tiles[0],)": "gate_problems failed",
    "def compute(self, problem, x): return x['z']": "compute failed: KeyError",
    "def compute(self, problem, x): raise NotImplementedError('y')": "compute is still to be written: y",
    "def compute(self, problem, x): return x['x'][:-1]": "compute gives y the shape (32,)",
    "def compute(self, problem, x): return {'z': x['x']}": "compute gives z",
    "def compute(self, problem, x): return x['x'].sort()": "gives 2 outputs, the task has 1: y",
    "def compute(self, problem, x): return 2.0": "gives y as a number",
    "def compute(self, problem, x): return [2.0]": "gives y as a number",
    "def compute(self, problem, x): return None": "compute gives nothing",
    "def compute(self, problem, x): return torch.rand_like(x['x'])": "another y when it is asked again",
    "def compute(self, x, y, n): return x['x']": "compute failed: TypeError",
    "def compute(self, problem, x): return x.x": "'dict' object has no attribute",
    "def compute(self, problem, x): return problem.n * x['x']": "'Problem' object has no attribute",
    "def compute(self, problem, x): return x['x'] + x['y']": "compute failed: KeyError: 'y'",
    'tensors = [In("n"), Out("n")]': "tensors is a list",
    'flags = ("fast",)': "flags is a tuple",
    'fixed = "n"': "fixed is a text",
    'summed = "n"': "summed is a text",
    'summed = ("columns",)': "summed names columns",
    "def compute(self, problem, x): return x['x'].float()": "in torch.float32, not in fp64",
    "def compute(self, problem, x): return x['x'].mul_(2)": "changes its inputs",
    "def compute(self, problem, x): return x['x'] / 0": "with NaN or infinity",
    "def reference(self, problem, x): return x['x'].double()": "reference gives a torch tensor",
    "def reference(self, problem, x): return {}": "reference gives nothing",
    "def honest(self, problem, x): return {'y': x['x'].half()}": "honest gives y in torch.float16",
    "def inputs(self, problem, family, seed, on): return {}": "inputs gives nothing",
    "def inputs(self, problem, family, seed, on): return {'x': torch.rand(problem['n'])}": "give another x",
    "def inputs(self, problem, family, seed, on): return {'x': torch.zeros(3)}": "the shape (3,)",
    "def inputs(self, problem, family, seed, on): return {'x': torch.zeros(problem['n']).long()}": "int64",
    "def inputs(self, problem, family, seed, on): return {'x': [1.0]}": "gives x as a list",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_with_its_line_and_what_to_write(tmp_path: Path, mistake: str) -> None:
    place = re.split(r"[ (]", mistake.removeprefix("def "))[0]
    path = written(tmp_path, *(line for name, line in GOOD.items() if name != place), mistake)
    with pytest.raises(UsageError) as caught:
        check_tensors(load_task("own", (tmp_path,)), path)
    assert MISTAKES[mistake] in caught.value.message
    assert caught.value.hint
    if isinstance(caught.value, BadTemplate):
        line = int(caught.value.message.removeprefix(f"{path}:").split(":")[0])
        assert place in path.read_text().splitlines()[line - 1]


MATRICES = 'tensors = {"x": In("rows", "columns"), "y": Out("rows", "columns")}'


@pytest.mark.parametrize("result", ["x['x'].t().contiguous()", "x['x'].t().unsqueeze(0)"])
def test_a_result_with_its_elements_in_another_order_is_refused(tmp_path: Path, result: str) -> None:
    task = made(tmp_path, 'sizes = {"rows": 40, "columns": 30}', MATRICES, result)
    with pytest.raises(BadTemplate, match=r"compute gives y the shape \((1, )?30, 33\)") as caught:
        check_tensors(task, tmp_path / "own/task.py")
    assert caught.value.hint == "the tensor's shape: (33, 30)"
    problem = task.problem("5,7")  # where the problem that is looked at first is a square
    with pytest.raises(UsageError, match=r"compute gives y the shape .* for 5,7"):
        task.reference(problem, task.inputs(problem, "normal", 1, "cpu"))


@pytest.mark.parametrize("result", ["x.flatten()", "x[:, None]", "x[None]", "x.view(1, *x.shape, 1)"])
def test_a_result_with_its_elements_in_the_same_order_is_taken(tmp_path: Path, result: str) -> None:
    result = result.replace("x", "x['x']", 1).replace("*x", "*x['x']")
    task = made(tmp_path, 'sizes = {"rows": 40, "columns": 30}', MATRICES, result)
    check_tensors(task, tmp_path / "own/task.py")
    problem = task.problem("5,7")
    inputs = task.inputs(problem, "normal", 1, "cpu")
    assert torch.equal(task.reference(problem, inputs)["y"], inputs["x"].double())


def test_a_task_without_a_function_or_tensors_says_so(tmp_path: Path) -> None:
    for missing, said in (("compute", "neither compute nor reference"), ("tensors", "declares no tensors")):
        written(tmp_path, *(line for name, line in GOOD.items() if name != missing))
        with pytest.raises(BadTemplate, match=said):
            load_task("own", (tmp_path,))
    check_tensors(made(tmp_path, GOOD["sizes"], GOOD["tensors"], "x['x'] * 2"), tmp_path / "own" / "task.py")
