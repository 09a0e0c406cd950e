"""The memory of a launch: every buffer between guards, outputs and workspaces poisoned, inputs watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

from evo.device import Copy, Region, copier
from evo.dtype import dtype_named
from evo.errors import Red
from evo.task import BufferSpec, Tensors
from evo.trial import Workspace

if TYPE_CHECKING:
    from torch import Tensor

GUARD_BYTES = 32 << 10
"""Before and after each buffer: a tile of 128 x 128 elements that is written past the end lands in it."""
ALIGNMENT, SHIFT = 256, 16
"""Bytes that buffers are aligned to: all of them, or as few as a kernel may rely on."""
_PATTERN_BYTES = 64 << 10
_FIELD_BYTES = 4 << 20
LARGE_BYTES = 64 << 20
"""Memory of which so much is copied at once."""


Role = Literal["in", "out", "inout", "scratch", "zeroed"]
_ITS_OWN: tuple[Role, ...] = ("scratch", "out", "inout")
"""Where a kernel may leave what it likes."""


@dataclass(frozen=True)
class _Span:
    """Where a buffer lies in the guarded memory."""

    name: str
    start: int
    nbytes: int
    role: Role

    @property
    def written(self) -> bool:
        """Whether its content after a launch is the kernel's own business."""
        return self.role in ("out", "inout", "scratch")

    @property
    def read(self) -> bool:
        """Whether the task gives it a content before a launch."""
        return self.role in ("in", "inout")

    @property
    def judged(self) -> bool:
        """Whether the task says what its content after a launch must be."""
        return self.role in ("out", "inout")


class GuardedMemory:
    """One allocation that holds all buffers of a launch and their guards.

    The guards hold NaNs (in fp16, bf16 and fp32 alike), so that a value read from there shows in the output;
    outputs and workspaces are poisoned before each launch, in turn with such NaNs and with plausible numbers,
    so that no kernel can tell poison from content. Buffers are aligned to ALIGNMENT bytes, or where they are
    `shifted` to SHIFT bytes only.
    """

    def __init__(
        self,
        buffers: Sequence[BufferSpec],
        workspaces: Sequence[Workspace],
        *,
        torch_device: str,
        shifted: bool = False,
    ) -> None:
        import torch

        self._specs = {b.name: b for b in buffers}
        self._spans: dict[str, _Span] = {}
        end = GUARD_BYTES
        wanted: list[tuple[str, int, Role]] = [(b.name, b.nbytes, b.role) for b in buffers]
        wanted += [(w.name, w.nbytes, "zeroed" if w.zeroed else "scratch") for w in workspaces]
        for name, nbytes, role in wanted:
            start = -(-end // ALIGNMENT) * ALIGNMENT
            self._spans[name] = _Span(name, start, nbytes, role)
            end = start + nbytes + GUARD_BYTES
        end = -(-end // ALIGNMENT) * ALIGNMENT
        self._device = torch_device
        self._copy = copier(torch_device)
        self.nbytes = end
        self._block = torch.empty(end + SHIFT + ALIGNMENT, dtype=torch.uint8, device=torch_device)
        self._places: dict[bool, _Place] = {}
        self.place(shifted)
        self._expected = torch.empty_like(self.content)
        self._expected_at = self._expected.data_ptr()
        self._blank = False
        """Whether what is expected holds guards, zeros, and poison in the place of outputs."""
        self._phase = 0
        """From which byte on patterns are copied."""
        spans = self._spans.values()
        self._inputs = {
            s.name: _typed(self._at(s, self._expected), self._specs[s.name]) for s in spans if s.read
        }
        self._in_place = {s.name: self._at(s, self._expected).clone() for s in spans if s.role == "inout"}
        """What buffers that are changed in place hold before each launch."""
        self._written = [
            (s, self._specs[s.name].dtype if s.name in self._specs else "fp32")
            for s in spans
            if s.written and not s.read
        ]

    def place(self, shifted: bool) -> None:
        """Where launches find it from now on. What is expected of them lies elsewhere and does not move: so
        one memory, and what looks at it, serves both."""
        if shifted not in self._places:
            self._places[shifted] = _Place(self._block, SHIFT * shifted, self.nbytes, self._spans.values())
        self._place = self._places[shifted]

    def fill(self, inputs: Tensors, seed: int) -> None:
        """Sets everything for the first launch: guards, inputs, zeroed workspaces, poison."""
        self._phase = 4 * seed
        if not self._blank:
            _fill(self._copy, self._expected_at, self.nbytes, _nan_field(self._device), self._phase)
            for span in self._spans.values():
                if span.role == "zeroed":
                    self._at(span, self._expected).zero_()
            self._blank = True
        self.load({name: inputs[name] for name in self._inputs})

    def load(self, inputs: Tensors) -> None:
        """Replaces these inputs; what launches left is gone."""
        import torch

        if self.nbytes < LARGE_BYTES and inputs:  # some kernels read nothing
            torch._foreach_copy_([self._inputs[name] for name in inputs], list(inputs.values()))
        else:  # the one call for all is for small tensors
            for name, tensor in inputs.items():
                self._inputs[name].copy_(tensor)
        for name in self._in_place.keys() & inputs.keys():
            self._in_place[name].copy_(self._at(self._spans[name], self._expected))
        self._copy(self._place.address, self._expected_at, self.nbytes)

    def inputs(self) -> dict[str, Tensor]:
        """The inputs as they should be, where no kernel is told to look."""
        return {
            name: _typed(self._in_place[name], self._specs[name]) if name in self._in_place else tensor
            for name, tensor in self._inputs.items()
        }

    @property
    def regions(self) -> Mapping[str, Region]:
        """What a launch may touch: for the same place the same object."""
        return self._place.regions

    def poison(self, turn: int) -> None:
        """Fills outputs and workspaces: with NaNs in even turns, with plausible numbers in odd ones. What is
        changed in place gets its content back. In turn 0 all is as `fill` left it."""
        if turn == 0:
            return
        for name, original in self._in_place.items():
            self._copy(self.regions[name].address, original.data_ptr(), original.numel())
        phase = self._phase + 4 * (turn // 2)
        for span, dtype in self._written:
            field = _nan_field(self._device) if turn % 2 == 0 else _number_field(self._device, dtype)
            _fill(self._copy, self.regions[span.name].address, span.nbytes, field, phase)

    def room_for_images(self, count: int) -> Tensor:
        """(count, nbytes), uint8: rows that `take_image` can fill."""
        import torch

        return torch.empty((count, self.nbytes), dtype=torch.uint8, device=self._device)

    @property
    def content(self) -> Tensor:
        """(nbytes,), uint8: everything as it is now. Of a large memory it is the only image: what a launch
        left there is looked at before the next one."""
        return self._place.content

    def take_image(self, image: Tensor) -> None:
        """Copies everything as it is now; does not wait."""
        to = image.data_ptr()
        if to != self._place.address:
            self._copy(to, self._place.address, self.nbytes)

    def expect_outputs(self, image: Tensor) -> None:
        """From now on outputs are expected to be as in `image`: those of a first launch."""
        self._blank = False
        for span in self._spans.values():
            if span.judged:
                self._at(span, self._expected).copy_(self._at(span, image))

    def forget_outputs(self) -> None:
        """Poison again where outputs were expected: nothing of them is left for the next `fill`."""
        for span in self._spans.values():
            if span.judged:
                _fill(self._copy, self._expected_at + span.start, span.nbytes, _nan_field(self._device), 0)
        self._blank = True

    @property
    def expected(self) -> Tensor:
        """(nbytes,), uint8: what a launch must leave where it may write nothing."""
        return self._expected

    def expected_outputs(self) -> dict[str, Tensor]:
        return self.outputs(self._expected)

    def unlike(self, images: Tensor, same_outputs: bool) -> Tensor:
        """Whether a launch left something changed that it must not change: guards, inputs, zeroed
        workspaces; nor, where there are to be the `same_outputs`, others than those expected. (1,), true or
        false, for `images` (launches, nbytes) taken after launches; does not wait."""
        import torch

        free: tuple[Role, ...] = ("scratch",) if same_outputs else _ITS_OWN
        changed = [words.any() for words in self._differ(self._expected, images, free)]
        return torch.stack(changed).any().reshape(1) if len(changed) > 1 else changed[0].reshape(1)

    def damaged(self, before: Tensor, after: Tensor) -> Tensor:
        """Of each launch whether it changed a guard or an input, or left a zeroed workspace unclean. `before`
        and `after`: images of the memory then, (launches, nbytes). (launches,), true or false; does not
        wait."""
        import torch

        return torch.stack([words.any(-1) for words in self._differ(before, after, _ITS_OWN)]).any(0)

    def other_outputs(self, first: Tensor, image: Tensor) -> Tensor:
        """Whether some output of `image` has other bits than in the image `first`; of no dimension, does not
        wait."""
        import torch

        spans = [span for span in self._spans.values() if span.judged]
        differ = [(_words(self._at(s, first)) != _words(self._at(s, image))).any() for s in spans]
        return torch.stack(differ).any()

    def _differ(self, one: Tensor, other: Tensor, free: tuple[Role, ...]) -> Iterator[Tensor]:
        """Which words of images, (…, nbytes), differ, one range outside the spans of these roles after the
        other."""
        for begin, end in self._ranges(free):
            yield _words(one[..., begin:end]) != _words(other[..., begin:end])

    def _ranges(self, free: tuple[Role, ...]) -> list[tuple[int, int]]:
        """The bytes (from, to) that lie outside the spans of these roles."""
        holes = sorted((s.start, s.start + s.nbytes) for s in self._spans.values() if s.role in free)
        starts = [0, *(end for _, end in holes)]
        ends = [*(start for start, _ in holes), self.nbytes]
        return list(zip(starts, ends, strict=True))

    def refuse_damage(self, image: Tensor) -> None:
        """Raises Red if the launch before `image` changed a guard or an input, or left a zeroed workspace
        unclean."""
        import torch

        first, count = -1, 0
        for begin, end in self._ranges(_ITS_OWN):
            changed = (image[begin:end] != self._expected[begin:end]).view(torch.uint8)
            here = int(changed.count_nonzero())
            if here and not count:
                first = begin + int(changed.argmax())
            count += here
        if not count:
            return
        for span in self._spans.values():
            if span.start <= first < span.start + span.nbytes:
                reason = "input changed" if span.role == "in" else "workspace not left zero"
                raise Red(reason, f"{count} bytes changed", f"{span.name} byte {first - span.start}")
        nearest = min(
            self._spans.values(), key=lambda s: max(s.start - first, first - s.start - s.nbytes + 1)
        )
        offset = first - nearest.start
        place = (
            f"{-offset} bytes before" if offset < 0 else f"{offset - nearest.nbytes} bytes past the end of"
        )
        raise Red("write out of bounds", f"{count} guard bytes changed", f"{place} {nearest.name}")

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """In the order of `outputs`."""
        return tuple(span.name for span in self._spans.values() if span.judged)

    def outputs(self, image: Tensor) -> dict[str, Tensor]:
        """The outputs in `image`."""
        return {
            span.name: _typed(self._at(span, image), self._specs[span.name])
            for span in self._spans.values()
            if span.judged
        }

    def _at(self, span: _Span, whole: Tensor) -> Tensor:
        return whole[span.start : span.start + span.nbytes]


class _Place:
    """Where in `block` a memory lies: aligned but for the first `skip` bytes; and its regions."""

    def __init__(self, block: Tensor, skip: int, nbytes: int, spans: Iterable[_Span]) -> None:
        begin = -block.data_ptr() % ALIGNMENT + skip
        self.content = block[begin : begin + nbytes]
        self.address = base = self.content.data_ptr()
        self.regions: Mapping[str, Region] = {
            span.name: Region(
                span.name,
                base + span.start,
                span.nbytes,
                writable=span.role != "in",
                initialised=span.read or not span.written,
            )
            for span in spans
        }


def _typed(raw: Tensor, spec: BufferSpec) -> Tensor:
    return raw.view(dtype_named(spec.dtype).torch).reshape(spec.shape)


def _fill(copy: Copy, to: int, nbytes: int, field: Tensor, shift: int) -> None:
    """Fills memory with the field's pattern, from `shift` bytes on."""
    source, room, at, begin = field.data_ptr(), field.numel(), 0, shift % _PATTERN_BYTES
    while at < nbytes:
        size = min(nbytes - at, room - begin)
        copy(to + at, source + begin, size)
        at, begin = at + size, 0
        # what is filled serves for more of it: the host takes 5 µs to start a copy
        whole = min(at // _PATTERN_BYTES * _PATTERN_BYTES, LARGE_BYTES)
        if whole > room:
            source, room = to + at - whole, whole


def _words(raw: Tensor) -> Tensor:
    """Bytes, (…, n), as 8-byte words where they can be: an eighth of the comparisons."""
    import torch

    whole = raw.shape[-1] % 8 == 0 and raw.storage_offset() % 8 == 0
    return raw.view(torch.int64) if whole else raw


@cache
def _nan_field(torch_device: str) -> Tensor:
    """Random 16-bit words that are NaN as fp16 and as bf16; pairs of them are NaN as fp32. A pattern of
    _PATTERN_BYTES again and again, so that most fills are one copy."""
    import torch

    rng = torch.Generator().manual_seed(1)
    count = _PATTERN_BYTES // 2
    payload = torch.randint(0x7F81, 0x8000, (count,), generator=rng, dtype=torch.int32)
    sign = torch.randint(0, 2, (count,), generator=rng, dtype=torch.int32) << 15
    pattern = ((payload | sign) & 0xFFFF).to(torch.uint16).view(torch.uint8)
    return pattern.repeat(_FIELD_BYTES // _PATTERN_BYTES).to(torch_device)


@cache
def _number_field(torch_device: str, dtype: str) -> Tensor:
    """Random numbers of the size of results, a pattern of _PATTERN_BYTES again and again."""
    import torch

    rng = torch.Generator().manual_seed(2)
    kind = dtype_named(dtype).torch
    numbers = torch.randn(_PATTERN_BYTES // kind.itemsize, generator=rng).to(kind)  # of integers: -3 to 3
    return numbers.view(torch.uint8).repeat(_FIELD_BYTES // _PATTERN_BYTES).to(torch_device)
