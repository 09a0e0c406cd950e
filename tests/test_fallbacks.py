"""What serves where no kernel does: right by the gate's own limits for every choice of flags, and
differentiable. Exported folders have a copy, so it imports torch alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from command import ROOT

import evo
from evo.errors import UsageError
from evo.gate.tolerance import limits_of
from evo.task import Task, load_task
from evo.task.modules import module_beside
from evo.trial import Problem

TASKS = ("attention", "cross_entropy", "gemm", "gemm_w4a16", "layernorm", "rmsnorm", "softmax")
SIZES = {"D": 64, "K": 128, "batch": 2}
ROUNDED = ("bias_gelu", "bias_silu", "scale")
"""Epilogues of the product that torch computes of a rounded product."""


def problems(task: Task) -> list[Problem]:
    """A small one for every choice of flags, of gaps none and one."""
    sizes = {name: SIZES.get(name, 5) for name in task.sizes}
    values = {name: (0, 8) if name == "gap" else flag.values for name, flag in task.flags.items()}
    every = itertools.product(*values.values())
    chosen = [dict(zip(task.flags, values, strict=True)) for values in every]
    return [Problem(task.name, sizes, task.dtypes[0], flags) for flags in chosen]


def computed(task: Task, problem: Problem, inputs: Any) -> dict[str, torch.Tensor]:
    own = task.fallback(problem)
    assert own is not None
    found = own.run(inputs)
    written = [spec.name for spec in task.buffers(problem) if spec.written]
    return dict(found) if isinstance(found, dict) else {written[0]: found}


@pytest.mark.parametrize("name", TASKS)
def test_a_fallback_is_right_for_every_choice_of_flags(name: str) -> None:
    task = load_task(name)
    for problem in problems(task):
        inputs = task.inputs(problem, task.families.plain, 0, "cpu")
        exact, honest = task.reference(problem, inputs), task.honest(problem, inputs)
        found = computed(task, problem, inputs)
        assert set(found) == set(exact)
        for output, due in exact.items():
            limits = limits_of(due, honest[output], task.tolerance)
            allowed = 2 if problem.flags.get("epilogue") in ROUNDED else 1
            apart = float((found[output].reshape(due.shape).double() - due.double()).abs().max())
            assert apart <= allowed * float(limits.element_limit), (problem.key, output)


@pytest.mark.parametrize("name", TASKS)
def test_a_fallback_has_gradients(name: str) -> None:
    """Those of the definition in fp64, to a few units of the storage type."""
    task = load_task(name)
    for problem in problems(task)[:: 7 if name == "gemm" else 1]:
        inputs = task.inputs(problem, task.families.plain, 0, "cpu")
        read = [n for n, x in inputs.items() if x.is_floating_point() and n not in task.packings]
        grads = []
        for kind in (None, torch.float64):
            leaves = {n: inputs[n].to(kind or inputs[n].dtype).requires_grad_() for n in read}
            outputs = (computed if kind is None else reference)(task, problem, {**inputs, **leaves})
            total = sum(x.double().square().sum() for x in outputs.values())
            found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
            assert found[0] is not None, problem.key
            grads.append([torch.zeros(1) if one is None else one.double() for one in found])
        for one, due in zip(*grads, strict=True):
            assert torch.allclose(one, due, rtol=0.05, atol=0.05 * float(due.abs().max())), problem.key


def reference(task: Task, problem: Problem, inputs: Any) -> dict[str, torch.Tensor]:
    """The definition; that of attention works in place, and torch's has its place."""
    if task.name == "attention":
        return computed(task, problem, inputs)
    return dict(task.reference(problem, inputs))


@pytest.mark.parametrize("name", TASKS)
def test_a_fallback_imports_torch_alone_and_has_a_name(name: str) -> None:
    task = load_task(name)
    text = (ROOT / "templates" / name / "fallback.py").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    own = {"__future__", "collections", "typing", "torch"}
    assert {line.split()[1].split(".")[0] for line in lines} == own
    found = task.fallback(task.example)
    assert found is not None
    assert found.name in text
    assert "torch" in found.name


def test_a_task_without_that_file_has_its_compute(tmp_path: Path) -> None:
    task = load_task("scale", (ROOT / "tests/toys",))
    assert module_beside(task, "fallback.py") is None
    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "task.py").write_text((ROOT / "tests/toys/scale/task.py").read_text())
    (folder / "fallback.py").write_text("NAME = 'mine'\n\ndef fallback(inputs, flags):\n    return flags\n")
    own = load_task("scale", (tmp_path,)).fallback(task.example)
    assert own is not None
    assert own.name == "mine"
    assert own.run({}) == task.example.flags


def test_a_call_that_fell_back_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """But one of another form is: another flag, shape or type, or an output that is given."""
    norm = evo.kernel("rmsnorm")
    x, weight, residual = torch.randn(3, 64), torch.ones(64), torch.randn(3, 64)
    first = norm(x, weight)
    read: list[object] = []
    reader = norm._reader.read

    def counted(*given: Any) -> Any:
        read.append(given)
        return reader(*given)

    monkeypatch.setattr(norm._reader, "read", counted)
    assert torch.equal(norm(x, weight), first)
    assert torch.equal(norm(2 * x, weight), torch.nn.functional.rms_norm(2 * x, (64,), weight, 1e-6))
    assert not read
    for others in ((x[:2], weight), (x.half(), weight.half())):
        norm(*others)
    norm(x, weight, out=torch.empty_like(x))
    norm(x, weight=weight, residual=residual.clone())
    assert len(read) == 4
    with pytest.raises(UsageError, match="weight is"):
        norm(x, "weight")


def test_a_call_that_fell_back_keeps_its_gradient_the_next_time() -> None:
    norm = evo.kernel("rmsnorm")
    x, weight = torch.randn(3, 64), torch.ones(64)
    norm(x, weight)
    x.requires_grad_()
    norm(x, weight).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0
