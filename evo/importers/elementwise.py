"""A kernel for a model of which each output element depends on the same element of the inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from evo.importers.model import Shapes, loaded, whole_numbers

Terms = Callable[..., str]
_ALPHA, _SCALE = 1.6732632423543772, 1.0507009873554805
"""The constants of SELU (Klambauer et al., Self-Normalizing Neural Networks, 2017)."""


def _elu(x: str, alpha: Any = 1.0) -> str:
    return f"({x} > 0.f ? {x} : {_text(alpha)} * expm1f({x}))"


def _gelu(x: str, approximate: str = "none") -> str:
    if approximate == "tanh":
        inner = f"0.7978845608028654f * ({x} + 0.044715f * {x} * {x} * {x})"
        return f"(0.5f * {x} * (1.f + tanhf({inner})))"
    return f"(0.5f * {x} * erfcf(-0.7071067811865476f * {x}))"


def _clamp(x: str, low: Any, high: Any) -> str:
    return f"fminf(fmaxf({x}, {_text(low)}), {_text(high)})"


def _hardtanh(x: str, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> str:  # noqa: ARG001
    return _clamp(x, min_val, max_val)


def _leaky(x: str, slope: Any = 0.01) -> str:
    return f"({x} > 0.f ? {x} : {_text(slope)} * {x})"


def _sigmoid(x: str) -> str:
    return f"(1.f / (1.f + expf(-{x})))"


def _relu(x: str) -> str:
    return f"fmaxf({x}, 0.f)"


def _binary(sign: str) -> Terms:
    return lambda a, b: f"({a} {sign} {b})"


_KNOWN: dict[Any, Terms] = {
    torch.relu: _relu,
    functional.relu: lambda x, inplace=False: _relu(x),  # noqa: ARG005
    torch.sigmoid: _sigmoid,
    functional.sigmoid: _sigmoid,
    torch.tanh: lambda x: f"tanhf({x})",
    torch.exp: lambda x: f"expf({x})",
    torch.abs: lambda x: f"fabsf({x})",
    torch.sqrt: lambda x: f"sqrtf({x})",
    torch.selu: lambda x: f"({_text(_SCALE)} * {_elu(x, _ALPHA)})",
    functional.softsign: lambda x: f"({x} / (1.f + fabsf({x})))",
    functional.softplus: lambda x: f"({x} > 20.f ? {x} : log1pf(expf({x})))",
    functional.hardsigmoid: lambda x, inplace=False: f"(fminf(fmaxf({x} + 3.f, 0.f), 6.f) / 6.f)",  # noqa: ARG005
    functional.leaky_relu: lambda x, negative_slope=0.01, inplace=False: _leaky(x, negative_slope),  # noqa: ARG005
    functional.elu: lambda x, alpha=1.0, inplace=False: _elu(x, alpha),  # noqa: ARG005
    functional.gelu: _gelu,
    functional.hardtanh: _hardtanh,
    operator.add: _binary("+"),
    operator.sub: _binary("-"),
    operator.mul: _binary("*"),
    operator.truediv: _binary("/"),
}
"""Functions of torch, and CUDA of the same meaning."""


def formula(
    file: Path,
    shapes: Shapes,
    sizes: Mapping[str, int],
    dimensions: Mapping[str, tuple[str, ...]],
    given: Mapping[str, Any],
) -> str:
    """The output's element `i` by CUDA; nothing where the model is not of this kind, or not understood."""
    kinds = {dimensions[name] for name in (*shapes.inputs, *shapes.outputs)}
    floats = all(x.dtype == torch.float32 for x in (*shapes.inputs.values(), *shapes.outputs.values()))
    whole = len(kinds) == 1 and {f'"{size}"' for size in sizes} == set(next(iter(kinds)))
    if shapes.weights or len(shapes.outputs) != 1 or not whole or not floats:
        return ""
    own = tuple({name: int(given.get(name, v)) for name, v in whole_numbers(file).items()}.items())
    module = loaded(file, own)
    try:
        graph = torch.fx.symbolic_trace(module.Model(*module.get_init_inputs())).graph
        return _text_of(graph, shapes)
    except Exception:  # noqa: BLE001 - whatever is not traced is written by a person
        return ""


def _text_of(graph: torch.fx.Graph, shapes: Shapes) -> str:
    texts: dict[Any, str] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            constant = shapes.constants.get(node.target)
            texts[node] = f"{node.target}[i]" if constant is None else _text(constant)
        elif node.op == "call_function":
            args = [texts.get(arg, arg) if isinstance(arg, torch.fx.Node) else arg for arg in node.args]
            binary = node.target in (operator.add, operator.sub, operator.mul, operator.truediv)
            args = [_text(arg) if binary and not isinstance(arg, str) else arg for arg in args]
            texts[node] = _KNOWN[node.target](*args, **node.kwargs)
        elif node.op == "output":
            return texts[node.args[0]]
        else:
            return ""
    return ""


def _text(value: Any) -> str:
    """A number as CUDA has it in fp32."""
    return f"{float(value)!r}f"
