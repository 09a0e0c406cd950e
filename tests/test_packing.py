"""What a task packs for its kernels: made with the inputs, checked against unpacking, made anew of others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import evo
from evo.calls import chosen_calls, with_calls
from evo.errors import BadTemplate
from evo.task import Task, load_task
from evo.task.computed import check_tensors
from evo.testing import TaskTests, TemplateTests

TOYS = (Path(__file__).parent / "toys",)
TASK_FILE = TOYS[0] / "nibbles" / "task.py"


class TestNibbles(TaskTests):
    task, folders = "nibbles", TOYS


@pytest.mark.nvcc
class TestNibblesByColumns(TemplateTests):
    task, template, folders, points = "nibbles", "columns", TOYS, 1


def repacked(**changed: object) -> Task:
    """The toy with another packing."""
    task = load_task("nibbles", TOYS)
    packing = dataclasses.replace(task.packings["by_columns"], **changed)  # type: ignore[arg-type]
    made = type("Nibbles", (type(task),), {"packings": {"by_columns": packing}})
    found = made()
    assert isinstance(found, Task)
    return found


def test_a_packing_is_a_buffer_after_the_others_and_no_traffic_of_its_own() -> None:
    task = load_task("nibbles", TOYS)
    problem = task.example
    assert [buffer.name for buffer in task.buffers(problem)] == ["nibble_rows", "total", "by_columns"]
    assert task.nbytes(problem) == 100 * 24 + 4 * 100


def test_a_packing_that_loses_something_is_refused_with_its_line() -> None:
    check_tensors(load_task("nibbles", TOYS), TASK_FILE)
    lossy = repacked(pack=lambda _, x: x["nibble_rows"].T.contiguous() & 127)
    with pytest.raises(BadTemplate, match=r"task\.py:\d+: by_columns does not hold nibble_rows as it was"):
        check_tensors(lossy, TASK_FILE)
    silent = repacked(unpack=lambda *_: {})
    with pytest.raises(BadTemplate, match="by_columns does not hold anything"):
        check_tensors(silent, TASK_FILE)


def test_a_packing_of_another_shape_is_refused() -> None:
    flat = repacked(pack=lambda _, x: x["nibble_rows"].T.contiguous().view(-1))
    with pytest.raises(BadTemplate, match="by_columns the shape"):
        check_tensors(flat, TASK_FILE)


def test_inputs_that_were_changed_are_packed_anew() -> None:
    task = load_task("nibbles", TOYS)
    x = task.inputs(task.example, "normal", 1, "cpu")
    (relation,) = task.relations(task.example)
    changed = task.packed(task.example, relation.change(x))
    assert not torch.equal(changed["by_columns"], x["by_columns"])
    assert torch.equal(changed["by_columns"], changed["nibble_rows"].T)


def test_recorded_tensors_are_packed_and_need_not_be_in_the_file(tmp_path: Path) -> None:
    task, file = load_task("nibbles", TOYS), tmp_path / "call.safetensors"
    rows = torch.arange(60, dtype=torch.uint8).view(10, 6)
    save_file({"nibble_rows": rows}, file)
    ((problem, own),) = chosen_calls(task, str(file)).items()
    assert problem.key == "nibbles rows=10 columns=6 fp32"
    x = with_calls(task, problem, own).inputs(problem, "own data 0", 0, "cpu")
    assert torch.equal(x["nibble_rows"], rows)
    assert torch.equal(x["by_columns"], rows.T)


@pytest.mark.slow  # the others pack the same tensors without a call
@pytest.mark.nvcc
def test_a_kernel_that_is_called_packs_what_it_is_not_given(tmp_path: Path) -> None:
    study = evo.search(
        TOYS[0] / "nibbles", shape={"rows": 40, "columns": 8}, budget=600, device="emulator", workers=1,
        database=tmp_path / "evo.db", progress=False,
    )  # fmt: skip
    assert study.best is not None
    rows = torch.arange(240, dtype=torch.uint8).view(30, 8)
    expected = ((rows & 15).int() + (rows >> 4)).sum(-1)
    assert torch.equal(study.best.kernel(rows), expected)
    packed = rows.T.contiguous()
    assert torch.equal(study.best.kernel(rows, by_columns=packed), expected)
