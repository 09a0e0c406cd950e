"""Calls within torch.compile: which operator a usual one is, and code of inductor, its usual backend, that
calls the launcher past torch's dispatcher. Nothing here imports evo."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

_OFFERED: list[tuple[Any, str, Callable[..., bool]]] = []


@dataclass(frozen=True)
class Means:
    """What operators call. Flags are by name."""

    run: Callable[[tuple[Tensor, ...], dict[str, Any]], Any]
    """Gives what is written, of the tensors that are read: one tensor, or several by name."""
    backward: Callable[[Any, dict[str, Any], Sequence[Tensor]], list[Tensor]]
    """The gradients of what is read, from those of the outputs."""
    writer: Callable[[dict[str, Any]], Callable[..., None]]
    """Gives, for flags, `write(*tensors, out=output)`, which computes the only output."""
    serves: Callable[[tuple[Tensor, ...], dict[str, Any]], bool]
    """Whether a kernel would compute it, for tensors that need no content."""
    plain: Callable[[Mapping[str, Tensor], Mapping[str, Any]], Any] | None = None
    """As `run`, by torch's operations: what the compiler sees of operators that change nothing in place."""


def usual_calls(
    operators: Mapping[tuple[Any, ...], Any],
    counts: Mapping[tuple[Any, ...], int],
    defaults: Mapping[str, Any],
    tensors: Collection[str],
) -> dict[tuple[Any, ...], dict[tuple[Any, ...], Any]]:
    """The operators of calls with all tensors by place and nothing but flags by name: by the number of
    tensors and the names of the flags, then by their values. torch.compile looks again in every call at
    whatever reading it asks for; here that is little. `operators`, and `counts` of the tensors that are read,
    are by the values of all flags; `defaults` has these in their order. `tensors`: names of some."""
    found: dict[tuple[Any, ...], dict[tuple[Any, ...], Any]] = {}
    for flags, count in counts.items():
        said = dict(zip(defaults, flags, strict=True))
        changed = {name for name in said if said[name] != defaults[name]}
        plain = [name for name in said if name not in tensors]
        for size in range(len(plain) + 1):
            for names in itertools.combinations(plain, size):
                if changed <= set(names):
                    values = tuple(said[name] for name in names)
                    found.setdefault((count, *names), {})[values] = operators[flags]
    return found


def offer(operator: Any, write: Callable[..., None], serves: Callable[..., bool]) -> None:
    """Lets inductor call `write(*tensors, out=output)` for an operator with one output, which inductor then
    allocates by itself, where `serves(*tensors)` says that a kernel will: of contiguous tensors without a
    content."""
    packet = operator.overloadpacket
    packet.write = write
    _OFFERED.append((operator, f"torch.ops.{operator.namespace}.{packet.__name__}.write", serves))


def ready() -> None:
    """To be called before inductor meets an operator; does nothing until inductor is there."""
    lowering = sys.modules.get("torch._inductor.lowering")
    while lowering is not None and _OFFERED:
        _register(lowering, *_OFFERED.pop())


def _register(lowering: Any, operator: Any, name: str, serves: Callable[..., bool]) -> None:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    usually = lowering.fallback_handler(operator, add_to_fallback_set=False)

    def lowered(*tensors: Any) -> Any:
        node = V.graph.current_node
        values = [argument.meta["val"] for argument in node.args]
        if V.graph.cpp_wrapper or not all(map(_plain, values)) or not serves(*values):
            return usually(*tensors)
        inputs = [ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(x)) for x in tensors]
        made = node.meta["val"]
        layout = ir.FixedLayout(made.device, made.dtype, list(made.shape))
        return ir.TensorBox.create(ir.ExternKernelOut(layout, inputs, python_kernel_name=name))

    lowering.register_lowering(operator, type_promotion_kind=None)(lowered)
    lowering.add_layout_constraint(operator, lowering.constrain_to_fake_tensors)


def _plain(tensor: Any) -> bool:
    """Contiguous, and of sizes that are known."""
    return all(isinstance(side, int) for side in tensor.shape) and bool(tensor.is_contiguous())
