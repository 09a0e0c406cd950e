"""A packaged kernel's calls as operators of torch, so that torch.compile traces each as one node. There is an
operator for each choice of flags. Nothing here imports evo."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .dispatch import length_of
from .reading import DTYPES, Call, Form, Reader
from .traced import Means, offer, ready, usual_calls


class Operators:
    """Registered in torch's library under the name of the `package`. Another copy of it in this process has a
    number, too."""

    def __init__(self, package: str, reader: Reader, means: Means) -> None:
        self._reader, self._means = reader, means
        package = _unused(package)
        self._library = torch.library.Library(package, "FRAGMENT")
        self._of = {
            flags: self._defined(package, number, form)
            for number, (flags, form) in enumerate(reader.forms.items())
        }
        counts = {
            flags: len(form.read)
            for flags, form in reader.forms.items()
            if form.written == form.made and len(form.made) == 1
        }
        self.usual = usual_calls(self._of, counts, reader.defaults, reader.tensors)

    def traced(self, call: Call) -> Any:
        """The call, as torch.compile traces it; into outputs that were given it is copied afterwards."""
        form = self._reader.form(call.flags)
        found = self._of[tuple(call.flags.values())](*call.read.values())
        several = (found,) if len(form.made) == 1 else found or ()
        made = dict(zip(form.made, several, strict=True))
        for name, given in call.outputs.items():
            made[name] = given.copy_(made[name])
        written = {name: made.get(name, call.read.get(name)) for name in form.written}
        return next(iter(written.values())) if len(written) == 1 else written

    def _defined(self, package: str, number: int, form: Form) -> Any:
        reads = ", ".join(
            f"Tensor({chr(97 + at)}!) {name}" if name in form.written else f"Tensor {name}"
            for at, name in enumerate(form.read)
        )
        outputs = ", ".join(["Tensor"] * len(form.made))
        name = f"{package}::call_{number}"
        gives = outputs if len(form.made) == 1 else f"({outputs})"
        compute = partial(_compute, form, self._means.run)
        self._define(name, f"({reads}) -> {gives}", compute, partial(self._fake, form))
        operator = getattr(getattr(torch.ops, package), f"call_{number}").default
        if not set(form.read) & set(form.written):
            pull = partial(_gradients, form, self._means.backward)
            self._define(f"{name}_backward", "(Tensor[] grads, Tensor[] read) -> Tensor[]", pull, alike)
            gradient = getattr(getattr(torch.ops, package), f"call_{number}_backward").default
            torch.library.register_autograd(
                name, partial(pulled, gradient), setup_context=keep_inputs, lib=self._library
            )
            if len(form.made) == 1:
                offer(operator, self._means.writer(dict(form.flags)), partial(_serves, self._means, form))
        return operator

    def _define(self, name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> None:
        torch.library.define(name, schema, lib=self._library, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(name, "CompositeExplicitAutograd", compute, lib=self._library)
        torch.library.register_fake(name, fake, lib=self._library)

    def _fake(self, form: Form, *tensors: Tensor) -> Any:
        """Outputs of the right shapes, which may be symbols, and types."""
        ready()
        call = Call(dict(zip(form.read, tensors, strict=True)), {}, dict(form.flags), tensors[0].device)
        dtype, sizes = self._reader.storage(call), self._reader.sizes(call)
        made = [
            tensors[0].new_empty(
                [length_of(side, sizes) for side in form.sides[name]],
                dtype=DTYPES[form.dtypes[name][dtype]],
            )
            for name in form.made
        ]
        return made[0] if len(made) == 1 else tuple(made) or None


def _unused(package: str) -> str:
    """The name, or with the first number under which nothing is registered."""
    names = itertools.chain([package], (f"{package}_{number}" for number in itertools.count(2)))
    return next(name for name in names if not hasattr(getattr(torch.ops, name), "call_0"))


def _compute(form: Form, run: Callable[..., Any], *tensors: Tensor) -> Any:
    with torch.no_grad():
        found = run(tensors, dict(form.flags))
    if isinstance(found, Tensor):
        return found.contiguous() if form.made else None
    made = [found[name].contiguous() for name in form.made]
    return made[0] if len(made) == 1 else tuple(made) or None


def _serves(means: Means, form: Form, *tensors: Tensor) -> bool:
    return means.serves(tensors, dict(form.flags))


def _gradients(
    form: Form, backward: Callable[..., list[Tensor]], grads: Sequence[Tensor], read: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of what is read, from those of the outputs."""
    return backward(read, dict(form.flags), grads)


def pulled(gradient: Any, context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """What autograd asks of an operator whose inputs were kept: `gradient` computes it."""
    read = context.saved_tensors
    found = gradient([grad.contiguous() for grad in grads], list(read))
    return tuple(one if x.is_floating_point() else None for one, x in zip(found, read, strict=True))


def keep_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:  # noqa: ARG001
    """Torch gives these by name."""
    ctx.save_for_backward(*inputs)


def alike(grads: Sequence[Tensor], read: Sequence[Tensor]) -> list[Tensor]:  # noqa: ARG001
    """Gradients without a content: as what is read."""
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in read]
