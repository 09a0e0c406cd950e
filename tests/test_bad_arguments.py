"""Arguments that no kernel takes, for the call of every task, by `evo.kernel` and from an exported folder: a
clear error, or the fallback's right answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import evo
from evo.errors import UsageError
from evo.export.bundle import Bundle
from evo.launch.packaged import PackagedKernel, _obstacle
from evo.task import load_task
from evo.task.modules import module_beside

TASKS = ("attention", "cross_entropy", "gemm", "gemm_w4a16", "layernorm", "rmsnorm", "softmax")
SIZES = {"D": 64, "K": 128, "batch": 2}
Tensors = dict[str, torch.Tensor]
ERRORS = (UsageError, TypeError, ValueError)


def misaligned(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, one element behind a multiple of 16 bytes."""
    view = torch.empty(x.numel() + 16, dtype=x.dtype)[1 : 1 + x.numel()].view(x.shape)
    return view.copy_(x)


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, every second one of a row."""
    wide = torch.zeros((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def required(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_() if x.is_floating_point() else x


ALLOWED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "plain": (lambda x: x, ""),
    "misaligned": (misaligned, "does not begin at a multiple of 16 bytes"),
    "strided": (strided, "is not contiguous"),
    "gradient": (required, "requires a gradient"),
}
"""By name: what becomes of every tensor, and why no kernel may take it."""
REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "another type": (lambda x: x.double(), "takes "),
    "no columns": (lambda x: x[..., :0], "is empty"),
    "no rows": (lambda x: x[:0], "is empty"),
    "nothing": (lambda _: None, "None"),
    "a list": (lambda x: x.tolist(), "is a list"),
    "an array": (lambda x: x.float().numpy(), "is a (ndarray|NumPy array)"),
    "a number": (lambda _: 1.0, "is a (float|number)"),
    "no dimensions": (lambda x: x.flatten()[0], "0 dimensions"),
    "a dimension more": (lambda x: x[None], "dimensions"),
    "a sparse tensor": (lambda x: x.to_sparse(), "layout torch.sparse_coo"),
}
"""By name: what becomes of the first tensor, and what the error says."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folders")


@cache
def callers(name: str, folders: Path) -> list[Any]:
    """The call by evo, and that of an exported folder without a kernel."""
    task, folder = load_task(name), folders / name
    folder.mkdir()
    fallback, pack = (module_beside(task, file) for file in ("fallback.py", "pack.py"))
    assert fallback is not None
    bundle = Bundle(task, f"evo_{name}", (), (), Path(str(fallback.__file__)))
    (folder / "dispatch.json").write_text(json.dumps(bundle.record()))
    packed = PackagedKernel(folder, f"evo_bad_{name}", fallback.fallback, pack.pack if pack else None)
    return [evo.kernel(name), packed]


def inputs_of(name: str) -> tuple[Tensors, Tensors]:
    """Small inputs of a task, and their exact outputs."""
    task = load_task(name)
    problem = task.example.replace(**{size: SIZES.get(size, 5) for size in task.sizes})
    inputs = task.inputs(problem, task.families.plain, 0, "cpu")
    return inputs, task.reference(problem, inputs)


@pytest.mark.parametrize("name", TASKS)
def test_what_no_kernel_may_take_is_the_fallbacks(name: str, folders: Path) -> None:
    inputs, exact = inputs_of(name)
    for call in callers(name, folders):
        for changed, (change, why) in ALLOWED.items():
            given = {n: change(x) for n, x in inputs.items()}
            found = call(**given)
            written = found if isinstance(found, dict) else dict.fromkeys(exact, found)
            for output, due in exact.items():
                tolerance = 0.05 * max(1.0, float(due.abs().max()))
                assert (written[output].double() - due.double()).abs().max() < tolerance, changed
                assert written[output].requires_grad == (changed == "gradient")
            if isinstance(call, PackagedKernel):
                told = _obstacle(call.reader.read((), None, given))
            else:
                told = call._reader.read((), None, given).obstacle
            assert why in told, changed
            assert bool(told) == bool(why), changed


@pytest.mark.parametrize("name", TASKS)
def test_what_is_no_input_is_a_clear_error(name: str, folders: Path) -> None:
    inputs, _ = inputs_of(name)
    first, x = next(iter(inputs.items()))
    for call in callers(name, folders):
        for changed, (change, said) in REFUSED.items():
            with pytest.raises(ERRORS, match=f"{first}.*{said}|{said}.*{first}") as error:
                call(**{**inputs, first: change(x)})
            assert first in str(error.value), changed
        if len(inputs) > 1:
            with pytest.raises(ERRORS, match="lie on cpu, meta"):
                call(**{**inputs, first: x.to("meta")})
        with pytest.raises(ERRORS, match="is missing"):
            call(**{n: value for n, value in inputs.items() if n != first})
        with pytest.raises(ERRORS, match="nothing"):
            call(**inputs, nothing=1)


@pytest.mark.parametrize("name", TASKS)
def test_outputs_that_do_not_fit_are_errors(name: str, folders: Path) -> None:
    inputs, exact = inputs_of(name)
    for call in callers(name, folders):
        found = call(**inputs)
        assert isinstance(found, torch.Tensor)
        with pytest.raises(ERRORS, match=r"is \(3,\) of torch.float32"):
            call(**inputs, out=torch.empty(3))
        out = torch.empty_like(found)
        assert call(**inputs, out=out) is out
        assert torch.equal(out, found)
        wide = strided(torch.empty_like(found))
        assert call(**inputs, out=wide) is wide
        assert torch.equal(wide, found)
        with pytest.raises(ERRORS, match="has no gradient"):
            call(**inputs, out=torch.empty_like(found).requires_grad_())
        with pytest.raises(ERRORS, match="is a list"):
            call(**inputs, out=[1.0])
    assert len(exact) == 1
