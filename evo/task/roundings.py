"""Roundings on the way, as the inputs of the honest computation have them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from evo.task.tensors import DeclaredTensor, Tensors

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    import torch
    from torch import Tensor

UNITS_OFF = 2.0
"""Units of rounding that an input of the honest computation may be off by itself."""
LONGEST_CHAIN = 1024
"""Terms that an honest kernel adds one after the other into one fp32 number; longer sums it cuts."""

KEPT_BYTES, KEPT_PART = 16 << 20, 128
"""Memory that kept roundings may take on the host; on a GPU one part in so many of its memory."""
LARGEST_KEPT = 32 << 20
"""Bytes of the roundings of one input that are kept."""
AT_ONCE = 1 << 22
"""Elements of the largest input in the draws that are made together."""


def summed_sizes(declared: Mapping[str, DeclaredTensor]) -> set[str | int]:
    """Sizes, by name or as a number above 1, that inputs have and no output: kernels add up along them."""
    outputs = {d for tensor in declared.values() if tensor.role != "in" for d in tensor.dimensions}
    inputs = {d for tensor in declared.values() if tensor.role != "out" for d in tensor.dimensions}
    return {
        size for size in inputs - outputs if isinstance(size, str) or (isinstance(size, int) and size > 1)
    }


def rounded_on_the_way(
    inputs: Tensors, declared: Mapping[str, DeclaredTensor], summed: set[str | int], draws: int
) -> Iterator[list[dict[str, Tensor]]]:
    """Of each draw the inputs (fp32 or fp64), off as the roundings of a kernel make them seem: each by a few
    units, and along the sizes `summed` by up to a unit more at every step. For a sum whose terms are added
    one after the other this is exact: it is the sum of such inputs (backward error; Higham, Accuracy and
    Stability of Numerical Algorithms, chapter 4). In draws 0 and 1 all steps round to one side, as they do
    where all terms are equal; in others to either side. Every other draw adds from the last term on. A buffer
    that is changed in place, and has no such size, may be what they are added to: it is off as the first of
    them is. So many draws are made together as have AT_ONCE elements: of a small problem all, for each
    operation takes a GPU's host 5 µs."""
    lengths = {d: x.shape[at] for n, x in inputs.items() for at, d in enumerate(_dimensions(declared, n))}
    steps = min(LONGEST_CHAIN, math.prod(lengths.get(size, 1) for size in summed))
    largest = max((x.numel() for x in inputs.values()), default=1)
    step = max(1, AT_ONCE // max(1, largest))
    for first in range(0, draws, step):
        numbers = range(first, min(first + step, draws))
        found = {}
        for place, (name, x) in enumerate(inputs.items()):
            along = [at for at, d in enumerate(_dimensions(declared, name)) if d in summed]
            added_to = summed and not along and name in declared and declared[name].role == "inout"
            before = steps if added_to else 0
            exact = not x.is_floating_point()
            found[name] = [x] * len(numbers) if exact else _seeming(x, along, before, place, numbers)
        yield [{name: each[i] for name, each in found.items()} for i in range(len(numbers))]


def _dimensions(declared: Mapping[str, DeclaredTensor], name: str) -> Sequence[object]:
    return declared[name].dimensions if name in declared else ()


def _seeming(x: Tensor, along: list[int], before: int, place: int, numbers: range) -> list[Tensor]:
    """What `x` seems to be in each draw, where its elements are terms that are added up `along` some
    dimensions, or come `before` so many terms. What it is multiplied by is cut out of what is drawn for the
    next larger shape whose sizes are powers of two, and is kept: so nothing is drawn for most of the thousand
    lengths that a finalist is tried at, and a CUDA graph, in which no number can be drawn, may read it ever
    after. A kernel that finds it there gains nothing: it counts for no more than it may be."""
    import torch

    factors = _factors_of(x, along, before, place, numbers)
    most = (UNITS_OFF + max(len(along), before > 0) * LONGEST_CHAIN / 2) * torch.finfo(x.dtype).eps / 2
    found: dict[int, Tensor] = {}
    for odd in (False, True):
        these = [i for i, number in enumerate(numbers) if bool(along and number % 2) == odd]
        if these:
            some = _cut(factors[these[0] :: 2 if along else 1], x.shape, along if odd else ())
            found |= zip(these, (x * some.clamp(1 - most, 1 + most)).unbind(), strict=True)
    return [found[i] for i in range(len(numbers))]


def _factors_of(x: Tensor, along: list[int], before: int, place: int, numbers: range) -> Tensor:
    """(draws, …): those of the shape whose sizes are the next powers of two; of `x` itself where they would
    not be kept. So they follow from the shape of `x` alone."""
    import torch

    shape = (len(numbers), *(1 << max(0, size - 1).bit_length() for size in x.shape))
    if math.prod(shape) * x.element_size() > LARGEST_KEPT:
        shape = (len(numbers), *x.shape)
    key = (x.device, x.dtype, shape, tuple(along), before, place, numbers)
    factors = _KEPT.get(key)
    if factors is None:
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("no number is drawn while work is captured")
        factors = _factors(x.new_empty(shape), along, before, place, numbers)
        if factors.nbytes <= LARGEST_KEPT:
            _keep(key, x.device, factors)
    return factors


def _keep(key: tuple[object, ...], device: torch.device, factors: Tensor) -> None:
    """Keeps them where there is room. On the host the oldest give way; graphs of a GPU read theirs ever
    after."""
    most = _kept_bytes(device)
    with _KEEPING:
        if key in _KEPT:
            return
        if device.type == "cpu" and factors.nbytes <= most:
            while _SPENT.get(device, 0) + factors.nbytes > most:
                oldest = next(other for other in _KEPT if other[0] == device)
                _SPENT[device] -= _KEPT.pop(oldest).nbytes
        if _SPENT.get(device, 0) + factors.nbytes <= most:
            _KEPT[key] = factors
            _SPENT[device] = _SPENT.get(device, 0) + factors.nbytes


def _cut(factors: Tensor, shape: Sequence[int], from_last: Sequence[int]) -> Tensor:
    """(draws, *shape) of the larger (draws, …): the last elements of the dimensions `from_last`, along which
    is added from the last term on, the first ones of others."""
    for at, size in enumerate(shape):
        first = factors.shape[at + 1] - size if at in from_last else 0
        factors = factors.narrow(at + 1, first, size)
    return factors


_KEPT: dict[tuple[object, ...], Tensor] = {}
"""The newest come last."""
_SPENT: dict[object, int] = {}
"""Bytes of what is kept, by device."""
_KEEPING = threading.Lock()
"""Several emulators check finalists in threads of one process."""


@cache
def _kept_bytes(device: torch.device) -> int:
    import torch

    if device.type != "cuda":
        return KEPT_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory) // KEPT_PART


def _factors(drawn: Tensor, along: list[int], before: int, place: int, numbers: range) -> Tensor:
    """By what an input is off in each draw, of the shape of `drawn`, (draws, *shape), which is written."""
    import torch

    rng = torch.Generator(device=drawn.device)
    for one, number in zip(drawn, numbers, strict=True):
        one.uniform_(generator=rng.manual_seed(number * 1009 + place))
    drawn = drawn * 2 - 1
    off = drawn * UNITS_OFF
    walk = drawn * (2 * math.sqrt(before))
    each = list(zip(numbers, drawn, strict=True))
    if along or before:
        for number, one in each:
            if number < 2:
                one.fill_(0.5 - number)
                walk[number - numbers.start] = (0.5 - number) * before
        for at in along:
            chains = [one.flip(at).cumsum(at).flip(at) if n % 2 else one.cumsum(at) for n, one in each]
            off = off + torch.stack(chains).clamp(-LONGEST_CHAIN / 2, LONGEST_CHAIN / 2)
    return 1 + (off + walk) * (torch.finfo(drawn.dtype).eps / 2)


FUNCTIONS = frozenset(
    "erf erfc exp exp2 expm1 gelu log log10 log1p log2 sigmoid sin cos tan tanh".split()  # noqa: SIM905
)
"""Functions of torch that a GPU's library rounds otherwise: CUDA's are off by up to two units in the last
place, and what is computed of them may be small beside them, as 1 + erf is."""


def functions_off(number: int) -> AbstractContextManager[object]:
    """Under it FUNCTIONS give what they give on a GPU, in draw `number` of the honest computation: in draws 0
    and 1 all are off to one side, in others each second element to the other one."""
    found: AbstractContextManager[object] = _mode()(number)
    return found


@cache
def _mode() -> type[Any]:
    import torch
    from torch.overrides import TorchFunctionMode

    def off(y: Tensor, number: int) -> Tensor:
        most = UNITS_OFF * torch.finfo(y.dtype).eps / 2
        if number < 2:
            return y * (1 + most * (1 - 2 * number))
        second = (torch.arange(y.numel(), device=y.device) + number) % 2 == 1
        return y * (1 + most * (1 - 2 * second.to(y.dtype))).view(y.shape)

    def gelu(x: Tensor, number: int, approximate: str = "none") -> Tensor:
        if approximate == "tanh":
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
            return 0.5 * x * (1 + off(inner.tanh(), number))
        return 0.5 * x * (1 + off((x / math.sqrt(2)).erf(), number))

    class FunctionsOff(TorchFunctionMode):  # type: ignore[misc]
        def __init__(self, number: int) -> None:
            super().__init__()
            self._number = number

        def __torch_function__(
            self, function: Callable[..., Any], _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = getattr(function, "__name__", "").removeprefix("special_")
            if name == "gelu":
                return gelu(args[0], self._number, **(kwargs or {}))
            found = function(*args, **(kwargs or {}))
            if name not in FUNCTIONS or not found.is_floating_point():
                return found
            return off(found, self._number)

    return FunctionsOff


def farthest(exact: Tensor, outputs: list[Tensor]) -> Tensor:
    """Of each element the value that is farthest from `exact`, the first of these; where a difference is no
    number, it is not far."""
    import torch

    alike = all(output.dtype == outputs[0].dtype for output in outputs)  # then one conversion does
    every = torch.stack(outputs if alike else [output.to(exact.dtype) for output in outputs])
    every = torch.cat([exact[None], every.to(exact.dtype)])
    apart = (every - exact).abs().nan_to_num(-1.0, math.inf)
    apart[0].masked_fill_(apart[0] < 0, math.inf)  # nothing is farther from what is no number itself
    first = apart.max(0, keepdim=True).indices  # as argmax, which takes 5 times as long on a CPU
    return every.gather(0, first)[0]
