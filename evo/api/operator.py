"""A task's call as operators of torch (`torch.ops.evo`), so that torch.compile traces it as one node.

There is an operator for each choice of the task's flags: `attention`, `attention_causal`. It takes the
tensors that the task reads, in its order; it gives the outputs, and changes in place what the task does.
Where no kernel can ever serve, the compiler sees the fallback's own operations instead of a node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evo.api.arguments import dtype_of
from evo.calls import dimensions_of
from evo.dtype import dtype_named
from evo.errors import UsageError
from evo.launch.operators import alike, keep_inputs, pulled
from evo.launch.traced import Means, offer, ready
from evo.task import Task
from evo.trial import Problem, Value

_LIBRARY = torch.library.Library("evo", "FRAGMENT")
_COUNTS: dict[str, itertools.count[int]] = {}

Flags = dict[str, Value]


def operators(task: Task, means: Means) -> dict[tuple[Value, ...], Any]:
    """An operator for each choice of flags, by their values in the task's order."""
    every = itertools.product(*(flag.values for flag in task.flags.values()))
    return {
        values: _Operator(task, dict(zip(task.flags, values, strict=True)), means).defined()
        for values in every
    }


class _Operator:
    """The operator of a task for one choice of its flags."""

    def __init__(self, task: Task, flags: Flags, means: Means) -> None:
        self._task, self._flags, self._means = task, flags, means
        specs = task.buffers(task.example.replace(**flags))
        self._read = [spec for spec in specs if spec.read]
        self._given = [spec for spec in specs if spec.role == "out"]
        self._dimensions = dimensions_of(task, flags)
        self._name = self._free_name()

    def defined(self) -> Any:
        """Registered: schema, what computes it, what it gives for tensors without a content, gradients."""
        changed = any(spec.written for spec in self._read)
        reads = ", ".join(
            f"Tensor({chr(97 + at)}!) {spec.name}" if spec.written else f"Tensor {spec.name}"
            for at, spec in enumerate(self._read)
        )
        outputs = ", ".join(["Tensor"] * len(self._given))
        gives = outputs if len(self._given) == 1 else f"({outputs})"
        name = f"evo::{self._name}"
        if self._means.plain and not changed:
            torch.library.define(name, f"({reads}) -> {gives}", lib=_LIBRARY)
            torch.library.impl(name, "CompositeImplicitAutograd", self._decomposed, lib=_LIBRARY)
            return getattr(torch.ops.evo, self._name).default
        _define(name, f"({reads}) -> {gives}", self._compute, self._fake)
        if not changed:
            _define(f"{name}_backward", "(Tensor[] grads, Tensor[] read) -> Tensor[]", self._grads, alike)
            gradient = getattr(torch.ops.evo, f"{self._name}_backward").default
            torch.library.register_autograd(
                name, partial(pulled, gradient), setup_context=keep_inputs, lib=_LIBRARY
            )
        operator = getattr(torch.ops.evo, self._name).default
        if not changed and len(self._given) == 1:
            offer(operator, self._means.writer(self._flags), self._serves)
        return operator

    def _free_name(self) -> str:
        """Of several kernels of one task the later ones have a number."""
        said = [
            f"_{name}" if value is True else f"_{name}_{value}"
            for name, value in self._flags.items()
            if value != self._task.flags[name].default
        ]
        name = "".join(c if c.isalnum() else "_" for c in self._task.name + "".join(said))
        number = next(_COUNTS.setdefault(name, itertools.count()))
        return f"{name}_{number}" if number else name

    def _named(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        return dict(zip((spec.name for spec in self._read), tensors, strict=True))

    def _compute(self, *tensors: Tensor) -> Any:
        if not torch.is_grad_enabled():
            return self._computed(tensors)
        with torch.no_grad():
            return self._computed(tensors)

    def _computed(self, tensors: tuple[Tensor, ...]) -> Any:
        found = self._means.run(tensors, self._flags)
        if isinstance(found, Tensor):
            return found.contiguous() if self._given else None
        return _several([found[spec.name].contiguous() for spec in self._given])

    def _serves(self, *tensors: Tensor) -> bool:
        return self._means.serves(tensors, self._flags)

    def _decomposed(self, *tensors: Tensor) -> Any:
        """By torch's operations, which a compiler may join with what is around them."""
        assert self._means.plain is not None
        found = self._means.plain(self._named(tensors), self._flags)
        named = found if isinstance(found, Mapping) else {self._given[0].name: found}
        return _several(
            [named[name].reshape(shape).to(dtype) for name, shape, dtype in self._outputs(tensors)]
        )

    def _fake(self, *tensors: Tensor) -> Any:
        """Outputs of the right shapes and types."""
        ready()
        return _several(
            [tensors[0].new_empty(shape, dtype=dtype) for _, shape, dtype in self._outputs(tensors)]
        )

    def _outputs(self, tensors: Sequence[Tensor]) -> list[tuple[str, list[Any], torch.dtype]]:
        """Name, shape, whose lengths may be symbols, and type of each."""
        sizes: dict[str, Any] = {}
        for spec, tensor in zip(self._read, tensors, strict=True):
            for size, length in zip(self._dimensions[spec.name], tensor.shape, strict=True):
                if isinstance(size, str):
                    sizes.setdefault(size, length)
        types = self._types(tensors)
        made = []
        for spec in self._given:
            shape = [
                sizes.get(size) if isinstance(size, str) else size for size in self._dimensions[spec.name]
            ]
            if None in shape:
                hint = "its dimensions are to be sizes that an input has"
                raise UsageError(f"torch.compile cannot tell the shape of {spec.name}", hint)
            made.append((spec.name, shape, types[spec.name]))
        return made

    def _types(self, tensors: Sequence[Tensor]) -> dict[str, torch.dtype]:
        """Of the outputs, for inputs of these types."""
        given = [dtype_of(tensor) for tensor in tensors]
        example = self._task.example.replace(**self._flags)
        for dtype in self._task.dtypes:
            problem = Problem(example.task, example.sizes, dtype, example.flags)
            specs = self._task.buffers(problem)
            if [spec.dtype for spec in specs if spec.read] == given:
                return {spec.name: dtype_named(spec.dtype).torch for spec in specs}
        raise UsageError(f"{self._task.name} takes no {', '.join(given)}", f"{', '.join(self._task.dtypes)}")

    def _grads(self, grads: Sequence[Tensor], read: Sequence[Tensor]) -> list[Tensor]:
        return self._means.backward(self._named(read), self._flags, grads)


def _define(name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> None:
    torch.library.define(name, schema, lib=_LIBRARY, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(name, "CompositeExplicitAutograd", compute, lib=_LIBRARY)
    torch.library.register_fake(name, fake, lib=_LIBRARY)


def _several(tensors: list[Tensor]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors) or None
