"""The task of a kernel that `evo.tune` was told of. The tensors that came with it are one more family of
inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from evo.errors import UsageError
from evo.task import Families, Task, Tensors
from evo.task.tensors import DeclaredTensor, draw
from evo.trial import Problem

if TYPE_CHECKING:
    from torch import Tensor

GIVEN = "given"
"""The family of the tensors that came with the kernel, and their timing input."""


@dataclass(frozen=True)
class KernelFacts:
    """What is known of a kernel, as a task needs it. `numbers`: arguments that are no sizes. `examples`: the
    file of the tensors that came with it; None where none did. `told`: attributes of the Task's class."""

    name: str
    sizes: Mapping[str, int]
    dtype: str
    tensors: Mapping[str, DeclaredTensor]
    reference: Callable[..., Any]
    numbers: Mapping[str, float] = field(default_factory=dict)
    examples: Path | None = None
    told: Mapping[str, Any] = field(default_factory=dict)

    def task(self) -> KernelTask:
        """The task, whose class has all of it as the class of a task in a file has."""
        own = {
            **self.told,
            "name": self.name,
            "sizes": dict(self.sizes),
            "dtypes": (self.dtype,),
            "tensors": self.tensors,
            "facts": self,
        }
        if self.examples is not None:
            own["families"] = replace(KernelTask.families, others=(*KernelTask.families.others, GIVEN))
        made: KernelTask = type("KernelTask", (KernelTask,), own)()
        return made


class KernelTask(Task):
    """`compute` is the reference; of the family `given` inputs are those that came with the kernel."""

    facts: ClassVar[KernelFacts]
    families: Families = Task.families

    def __reduce__(self) -> tuple[Callable[[KernelFacts], KernelTask], tuple[KernelFacts]]:
        return KernelFacts.task, (self.facts,)

    def compute(self, problem: Problem, inputs: Tensors) -> Any:
        """What the reference says, called with what it takes."""
        return called(self.facts.reference, inputs, {**problem.sizes, **self.facts.numbers})

    @property
    def timing_inputs(self) -> Mapping[str, str]:
        """The plain family, and the tensors that came with the kernel."""
        own = {} if self.facts.examples is None else {GIVEN: "the tensors that were given"}
        return {**super().timing_inputs, **own}

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        if family != GIVEN:
            return super().inputs(problem, family, seed, torch_device)
        return self.timing_tensors(problem, family, seed, torch_device)

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        if name != GIVEN:
            return draw(self.tensors, problem, name, seed, torch_device, mixed=False)
        found = draw(self.tensors, problem, self.families.plain, seed, torch_device, mixed=False)
        for argument, example in self._examples.items():
            found[argument] = resized(example, tuple(found[argument].shape)).to(torch_device)
        return found

    @cached_property
    def _examples(self) -> dict[str, Tensor]:
        import torch

        loaded: dict[str, Tensor] = torch.load(self.facts.examples, weights_only=True)
        return loaded


def resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor of that shape: the beginning of each dimension, over again where it is too short."""
    import torch

    for at, side in enumerate(shape):
        if tensor.shape[at] != side:
            tensor = tensor.index_select(at, torch.arange(side) % tensor.shape[at])
    return tensor.contiguous()


def called(reference: Callable[..., Any], tensors: Mapping[str, Any], numbers: Mapping[str, Any]) -> Any:
    """What the reference gives: called by the names of its parameters, where these are names of tensors and
    numbers, else with the tensors in their order."""
    known = {**numbers, **tensors}
    try:
        parameters = inspect.signature(reference).parameters
    except (TypeError, ValueError):  # a builtin
        return reference(*tensors.values())
    if parameters and all(name in known for name in parameters):
        return reference(**{name: known[name] for name in parameters})
    plain = [p for p in parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    if not several and len(plain) != len(tensors):
        hint = f"parameters named as tensors, sizes or numbers: {', '.join(known)}"
        raise UsageError(f"the reference takes {', '.join(parameters) or 'nothing'}", hint)
    return reference(*tensors.values())
