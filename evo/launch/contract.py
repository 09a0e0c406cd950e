"""The contract of an exported folder: small cases of the gate, whose answers lie beside it, as torch.save
wrote them. On a GPU that a kernel is for, kernels answer; elsewhere the fallback does. Nothing here imports
evo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FILE = "cases.pt"


def cases(folder: Path) -> list[dict[str, Any]]:
    """Each has `name`, `inputs`, `flags`, and by output `expected` with its `row_limit` and
    `element_limit`."""
    found: list[dict[str, Any]] = torch.load(folder / FILE, weights_only=True)
    return found


def check(call: Any, case: Mapping[str, Any], device: str) -> str:
    """Runs one case and says what served it. AssertionError where an output is beyond a limit: of the worst
    row's relative error, or of the largest error of an element; NotServed where nothing serves the case here.
    `call` is a PackagedKernel."""
    inputs = {name: tensor.to(device) for name, tensor in case["inputs"].items()}
    served: str = call.explain(**inputs, **case["flags"])
    with torch.no_grad():
        found = call(**inputs, **case["flags"])
    if isinstance(found, Tensor):
        found = dict.fromkeys(case["expected"], found)
    for name, said in case["expected"].items():
        exact = said["values"].double()
        apart = found[name].cpu().double() - exact
        if not found[name].is_floating_point():
            assert not apart.any(), f"{case['name']}: {name} is wrong, by {served}"
            continue
        lengths = torch.linalg.vector_norm(exact, dim=-1)
        lengths = torch.maximum(lengths, lengths.mean() * 1e-3 + torch.finfo(torch.float32).tiny)
        row = float((torch.linalg.vector_norm(apart, dim=-1) / lengths).max())
        element = float(apart.abs().max())
        within = row <= said["row_limit"] and element <= said["element_limit"]
        limits = f"limits {said['row_limit']:.3g} and {said['element_limit']:.3g}"
        assert within, f"{case['name']}: {name} is off by {row:.3g}, {element:.3g} ({limits}), by {served}"
    return served
