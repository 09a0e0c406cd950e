"""The input families of a task, and what each is for in the gate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Families:
    """The input families of a task, by the role that they have in the gate. Only `plain` is needed.

    Every family is a name that `Task.inputs` takes. The more roles a task fills, the more mistakes the gate
    sees."""

    plain: str
    """Inputs without any trait; kernels are timed on them, unless the task says what else."""
    sharp: str | None = None
    """A few terms of a sum carry it: a lost term or a wrong scale shows."""
    even: str | None = None
    """All terms are alike: roundings on the way add up."""
    lone: str | None = None
    """One term, which may be any, is far above all others: whatever overlooks one term is seen."""
    large: str | None = None
    """Values as large as the storage type holds: a sum in a narrower type overflows, a clamp shows."""
    tiny: str | None = None
    """Values below the normal numbers of the storage type, or of a narrower one: what is flushed to 0, or
    converted to that, shows."""
    growing: str | None = None
    """Terms grow from the first to the last: what a kernel keeps of earlier ones must be scaled anew."""
    masked: str | None = None
    """A term that is masked by mistake, or not masked, shows most. It may be one of the others."""
    others: tuple[str, ...] = ()
    """More families, met in turns."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All families, each once: plain, sharp, even, the others, and the lone one last."""
        late = (self.large, self.tiny, self.growing, self.masked, self.lone)
        ordered = (self.plain, self.sharp, self.even, *self.others, *late)
        early = dict.fromkeys(name for name in ordered[:-1] if name is not None and name != self.lone)
        return (*early, *([self.lone] if self.lone else []))
