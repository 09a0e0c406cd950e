"""`evo import kernelbench` and `evo import flashinfer-trace`: tasks from references in torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command import Evo

from evo.errors import EvoError
from evo.importers import Made, import_file
from evo.task import load_task
from evo.template import load_template

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, slope):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.slope = slope

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, scale: float):
        rows = self.norm(x.float())[chosen] * scale
        return torch.nn.functional.leaky_relu(rows, self.slope)

rows = 40
features = 3 * 8
picks = 7
shape = (rows, features)

def get_inputs():
    return [torch.rand(*shape), torch.randint(0, rows, (picks,)), 2.5]

def get_init_inputs():
    return [features, 0.1]
"""
POINTWISE = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.sigmoid(a) * b - 1.5

n, m = 6, 500
side = 500

def get_inputs():
    return [torch.randn(side, side), torch.randn(side, side)]

def get_init_inputs():
    return []
"""
DEFINITION: dict[str, Any] = {
    "name": "scaled_rows_d24",
    "op_type": "rmsnorm",
    "axes": {
        "batch": {"type": "var"},
        "dim": {"type": "const", "value": 24},
        "ends": {"type": "var"},
    },
    "constraints": ["ends == batch + 1", "batch % 2 == 0"],
    "inputs": {
        "x": {"shape": ["batch", "dim"], "dtype": "bfloat16"},
        "offset": {"shape": ["ends"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch", "dim"], "dtype": "bfloat16"}},
    "reference": "import torch\n\ndef run(x, offset, eps):\n    wide = x.to(torch.float32)\n"
    "    factor = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)\n"
    "    return (wide * factor + offset[1:, None]).to(torch.bfloat16)\n",
}  # fmt: skip


def imported(folder: Path, text: str, name: str = "7_Picked_Rows.py", **options: Any) -> Made:
    (folder / name).write_text(text)
    return import_file("kernelbench", folder / name, folder / "tasks", **options)


def defined(folder: Path, changed: dict[str, Any], **options: Any) -> Made:
    (folder / "definition.json").write_text(json.dumps({**DEFINITION, **changed}, indent=1))
    return import_file("flashinfer-trace", folder / "definition.json", folder / "tasks", **options)


def test_a_model_becomes_a_task_with_its_weights_as_inputs(tmp_path: Path) -> None:
    made = imported(tmp_path, PROBLEM)
    assert made.name == "picked_rows"
    assert "MIT licence" in made.notes[0]
    assert "write the kernel" in made.missing
    task = load_task("picked_rows", (tmp_path / "tasks",))
    assert dict(task.example.sizes) == {"rows": 40, "features": 24, "picks": 7}
    shapes = {b.name: (b.shape, b.dtype) for b in task.buffers(task.problem("30,16,9"))}
    assert shapes == {
        "x": ((30, 16), "fp32"), "chosen": ((9,), "i64"), "norm_weight": ((16,), "fp32"),
        "norm_bias": ((16,), "fp32"), "output": ((9, 16), "fp32"),
    }  # fmt: skip
    assert task.tensors["chosen"].between == (0, "rows")


def test_the_reference_is_fp64_of_the_given_weights(tmp_path: Path) -> None:
    imported(tmp_path, PROBLEM)
    task = load_task("picked_rows", (tmp_path / "tasks",))
    for family in ("given", "peaky"):
        inputs = task.inputs(task.example, family, 3, "cpu")
        x = inputs["x"].double()
        normed = torch.nn.functional.layer_norm(
            x, (24,), inputs["norm_weight"].double(), inputs["norm_bias"].double()
        )
        right = torch.nn.functional.leaky_relu(normed[inputs["chosen"]] * 2.5, 0.1)
        found = task.reference(task.example, inputs)["output"]
        assert found.dtype == torch.float64
        assert bool((found - right).abs().max() < 1e-11)  # `x.float()` of the model throws nothing away
    again = task.inputs(task.example, "given", 3, "cpu")
    assert torch.equal(again["x"], task.inputs(task.example, "given", 3, "cpu")["x"])
    assert float(again["x"].min()) >= 0  # torch.rand of the file
    assert set(task.baselines(task.example, "cpu")) == {"eager"}
    eager = task.baselines(task.example, "cpu")["eager"](again)
    assert torch.allclose(eager, task.reference(task.example, again)["output"].float(), atol=1e-5)


def test_inputs_that_a_file_makes_by_more_than_drawing_stay_its_own(tmp_path: Path) -> None:
    made = imported(tmp_path, PROBLEM.replace("torch.rand(*shape)", "torch.rand(*shape).triu()"))
    assert "it makes x by more than drawing" in made.notes[1]
    assert load_task("picked_rows", (tmp_path / "tasks",)).families.names == ("given",)


def test_inputs_keep_to_where_the_result_is_finite(tmp_path: Path) -> None:
    text = POINTWISE.replace("torch.sigmoid(a)", "torch.sqrt(a)").replace("randn", "rand")
    made = imported(tmp_path, text)
    assert "between (0, 1)" in made.notes[1]
    task = load_task("picked_rows", (tmp_path / "tasks",))
    assert float(task.inputs(task.example, "normal", 1, "cpu")["a"].min()) >= 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def get_inputs", "def other", "there is no get_inputs"),
        ("* scale", "* scale.item()", "the model does not take rows=40"),
        ("class Model", "class Model(", "7_Picked_Rows.py:5"),
        ("return [features, 0.1]", "return [rows, 0.1]", "the model does not take"),
        ("import torch\n", "import torch\nraise OSError('no')\n", "7_Picked_Rows.py:3: OSError: no"),
        ("leaky_relu(rows, self.slope)", "leaky_relu(rows, self.slope) * float('inf')", "is not finite"),
    ],
)  # fmt: skip
def test_problems_that_cannot_be_taken_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(EvoError, match=said):
        imported(tmp_path, PROBLEM.replace(old, new, 1))
    assert not (tmp_path / "tasks" / "picked_rows").exists()


@pytest.mark.nvcc
@pytest.mark.slow  # the gate tries a kernel of two inputs at every size
def test_a_pointwise_model_gets_a_kernel(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "2_Gated.py").write_text(POINTWISE)
    assert evo("import", "kernelbench", str(tmp_path / "2_Gated.py")).code == 0
    good = evo("try", "gated", "--shape", "37", "--device", "emulator", "--json")
    assert (good.code, json.loads(good.out)["outcome"]) == (0, "GREEN"), good.err


@pytest.mark.nvcc
def test_a_kernel_that_is_still_to_be_written_is_refused(evo: Evo, tmp_path: Path) -> None:
    (tmp_path / "3_Picked.py").write_text(PROBLEM)
    assert evo("import", "kernelbench", str(tmp_path / "3_Picked.py")).code == 0
    stub = evo("try", "picked", "--shape", "9,8,4", "--device", "emulator", "--json")
    assert (stub.code, json.loads(stub.out)["outcome"]) == (4, "RED"), stub.err


def test_a_definition_becomes_a_task(tmp_path: Path) -> None:
    made = defined(tmp_path, {}, given={"eps": 1e-6, "batch": 6})
    task = load_task("scaled_rows_d24", (tmp_path / "tasks",))
    assert (dict(task.example.sizes), tuple(task.fixed)) == ({"batch": 6, "dim": 24}, ("dim",))
    assert {b.name: b.shape for b in task.buffers(task.example)} == {
        "x": (6, 24),
        "offset": (7,),
        "y": (6, 24),
    }
    assert all(problem.sizes["batch"] % 2 == 0 for problem in task.gate_problems(task.example, (16,)))
    with pytest.raises(EvoError, match="scaled_rows_d24 cannot be 5,24"):
        task.problem("5,24")
    inputs = task.inputs(task.example, "normal", 1, "cpu")
    x, offset = inputs["x"].double(), inputs["offset"].double()
    right = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) + offset[1:, None]
    assert bool((task.reference(task.example, inputs)["y"] - right).abs().max() < 1e-12)
    template = load_template(task, made.name, (tmp_path / "tasks",))
    assert "const __nv_bfloat16* x" in template.candidate(template.space.default, task.example).source


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, r"definition.json:\d+: eps is a number that the definition does not say"),
        ({"constraints": ["ends == offset[-1].item()"]}, "a constraint reads the inputs"),
        ({"constraints": ["depth > 1"]}, "speaks of depth, which is no axis"),
        ({"outputs": {"y": {"shape": ["batch"], "dtype": "float8_e4m3fn"}}}, "y is of the type float8_e4m3"),
        ({"outputs": {"y": {"shape": ["width"], "dtype": "float32"}}}, "y has an axis width"),
        ({"reference": "import torch"}, "there is no function run"),
        ({"reference": "def run(x, offset, eps):\n    return x[:, :0]"}, "the reference fails"),
        ({"axes": {}}, "definition.json:1: there is no axes"),
    ],
)  # fmt: skip
def test_definitions_that_cannot_be_taken_are_refused(tmp_path: Path, changed: Any, said: str) -> None:
    with pytest.raises(EvoError, match=said):
        defined(tmp_path, changed, given={} if not changed else {"eps": 1e-6})
    assert not (tmp_path / "tasks" / "scaled_rows_d24").exists()
