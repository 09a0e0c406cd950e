"""A task: its problems, inputs, high-precision reference, baselines and work. `load_task` finds it by name.

A task is a folder `templates/<name>/` with a `task.py` that defines `TASK`. It is Python and runs with all
rights of the person who starts evo, as templates do: use only those that you trust, as with any program.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from evo.dtype import dtype_named, types_hint
from evo.errors import UsageError
from evo.task.baselines import Baseline, Fallback
from evo.task.families import Families
from evo.task.fitting import fitted, nearer, within_reach
from evo.task.flags import Flag
from evo.task.modules import module_beside
from evo.task.packing import Packing
from evo.task.pieces import Pieces, split
from evo.task.problems import around_tiles, every_size, tile_range
from evo.task.relations import Relation, rows_apart
from evo.task.roundings import farthest, functions_off, rounded_on_the_way, summed_sizes
from evo.task.shapes import sizes_of
from evo.task.tensors import FAR, BufferSpec, DeclaredTensor, Tensors, draw, precise, same_order
from evo.trial import Problem

if TYPE_CHECKING:  # importing torch takes seconds: only what computes imports it
    from torch import Tensor

DEFAULT_DTYPE = "fp32"
"""The storage type of a task that names none."""
EXAMPLE = "example"
"""The set of problems of a task that names none: what its sizes say."""
LARGEST_BUFFER = 2**40
"""Elements that a buffer has fewer than."""
ROUNDED_DRAWS = 8
"""Computations that the honest one is chosen from: the error of one may be small by luck. With four of them a
correct stencil, of one inner cell a row, was refused as a finalist at two of twelve seeds."""


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be off its reference; evo.gate.tolerance says what each number bounds. Integer
    outputs are compared exactly, whatever stands here."""

    row_factor: float = 1.75
    """A row's error may be so many times the honest computation's."""
    element_factor: float = 1.5
    """An element's error may be so many times the honest computation's."""
    row_floor: float = 1.0
    """Units of rounding (2^-11 in fp16, 2^-8 in bf16, 2^-22 in fp32) that every row may be off."""
    few_rows: int = 64
    """A case with fewer rows than this has the two floors that follow."""
    few_rows_floor: float = 1.5
    element_floor: float = 2.0
    """Units of rounding of the largest element that an element may be off."""


class Task:
    """What is to be computed, and how one knows that it was. The short form:

        class Saxpy(Task):
            name, sizes, dtypes = "saxpy", {"n": 1_000_000}, ("fp32",)
            tensors = {"x": In("n"), "y": InOut("n")}

            def compute(self, problem, x):
                return 2 * x["x"] + x["y"]

    Everything else has a default that follows from these: the example problem, inputs of nine families, the
    reference (`compute` in fp64), the honest computation (in fp32), baselines (`compute` eager and compiled),
    the gate's problems. A task that knows better defines `buffers`, `inputs`, `reference` … itself. The gate
    judges row by row: a row is the last dimension of an output.
    """

    name: ClassVar[str]
    sizes: ClassVar[Sequence[str] | Mapping[str, int]]
    """Names of a problem's sizes, in the order of a shape text: ("M", "N", "K") for "64,64,128". A mapping
    has the example's sizes as well."""
    dtypes: ClassVar[tuple[str, ...]] = (DEFAULT_DTYPE,)
    """Storage types that are served; the first is the default."""
    flags: ClassVar[Mapping[str, Flag]] = {}
    problems: Mapping[str, tuple[Problem, ...]] = {}
    """Named sets of problems; the first problem of the first set is the task's example."""
    tensors: ClassVar[Mapping[str, DeclaredTensor]] = {}
    """What a kernel reads and writes, in the order of its arguments; or define `buffers`."""
    packings: ClassVar[Mapping[str, Packing]] = {}
    """More tensors that a kernel may read: what others hold, in an order that suits it (evo.task.packing)."""
    summed: ClassVar[tuple[str, ...]] = ()
    """Sizes along which kernels add up, besides those that inputs have and outputs have not."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Sizes that kernels have in their code: the gate's own problems keep them."""
    independent_rows: ClassVar[bool] = False
    """Whether the first dimension of every output is made of pieces that do not depend on each other: the
    gate then checks that none moves when another's inputs change."""
    keeps_tensors: ClassVar[bool] = True
    """Whether what it computes may keep tensors from call to call, as constants of a size are."""
    families: Families = Families(
        plain="normal",
        sharp="peaky",
        even="alike",
        lone="spike",
        large="huge",
        tiny="tiny",
        masked="large",
        others=("small", "steps"),
    )
    ranges: Mapping[str, Mapping[str, tuple[float, float]]] = {}
    """What is promised of a family's inputs: for each of its `measures` between what it lies, whatever the
    problem and the seed. All inputs are finite; a kernel may do with NaN and infinity what it likes."""
    tolerance: Tolerance = Tolerance()
    baseline_groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Baselines that are one library's, by a name that tables show: {"SDPA": ("flash", "cudnn")}."""
    captures: ClassVar[Mapping[str, Callable[..., tuple[Tensors, Mapping[str, object]]]]] = {}
    """What `evo.capture` records: a function by its name ("torch.nn.functional.relu"), and what takes its
    arguments and gives tensors by buffer and flags by name. It raises UsageError with the reason for a call
    that the task does not compute; that call is skipped and counted."""
    packages: Sequence[str] = ()
    """Distributions that baselines come from, besides torch: their versions are kept beside the times."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Makes the example of `sizes` that have numbers, where no problems are named."""
        super().__init_subclass__(**options)
        sizes = cls.__dict__.get("sizes")
        if isinstance(sizes, Mapping) and not cls.problems:
            declared = cls.flags if isinstance(cls.flags, Mapping) else {}
            flags = {name: flag.default for name, flag in declared.items() if isinstance(flag, Flag)}
            dtype = next(iter(cls.dtypes), DEFAULT_DTYPE)
            cls.problems = {EXAMPLE: (Problem(cls.name, dict(sizes), dtype, flags),)}

    @property
    def example(self) -> Problem:
        """The problem that a search has where none is named."""
        return next(iter(self.problems.values()))[0]

    # ---- problems

    def problem(self, shape: str, dtype: str | None = None, **flags: object) -> Problem:
        """The problem of a shape text: one whole number for each of `sizes`, with commas between them, such
        as "1,8,512,64"; or some by name, such as "L=512,D=64", and the others as the example has them.
        UsageError if malformed or unsupported."""
        example = {size: self.example.sizes[size] for size in self.sizes}
        sizes = sizes_of(shape, example, [name for name in self.problems if name != EXAMPLE])
        dtype = dtype or self.dtypes[0]
        if dtype not in self.dtypes:
            raise UsageError(f"unsupported dtype: {dtype}", types_hint(dtype, self.dtypes))
        if unknown := set(flags) - set(self.flags):
            declared = ", ".join(self.flags)
            known = f"flags of {self.name}: {declared}" if declared else f"{self.name} has no flags"
            raise UsageError(f"unknown flag: {', '.join(sorted(unknown))}", known)
        chosen = {name: flag.parse(name, flags.get(name, flag.default)) for name, flag in self.flags.items()}
        made = Problem(self.name, sizes, dtype, chosen)
        self.validate(made)
        if any(math.prod(buffer.shape) >= LARGEST_BUFFER for buffer in self.buffers(made)):
            raise UsageError(f"shape too large: {shape}", "a buffer has fewer than 2^40 elements")
        return made

    def validate(self, problem: Problem) -> None:
        """Raises UsageError for a problem that the task does not define; by default it defines all."""

    def share(self, problem: Problem, part: float) -> Problem:  # noqa: ARG002
        """A problem of about `part` (0 to 1) of the work, made of the same independent pieces (heads):
        fewer CTAs, each as busy as before. The problem itself where it has no such pieces."""
        return problem

    def pieces(self, problem: Problem) -> Pieces | None:
        """What a large problem is judged by; None: it is judged whole. By default rows, if independent."""
        return Pieces.of_rows(self.declared(problem)) if self.independent_rows else None

    # ---- what is computed

    def compute(self, problem: Problem, inputs: Tensors) -> Any:
        """The outputs by torch, in the precision of the floating-point `inputs`: one tensor, or several by
        name. It must not change its inputs."""
        raise NotImplementedError(f"task {self.name} defines neither compute nor reference")

    def buffers(self, problem: Problem) -> tuple[BufferSpec, ...]:
        """Inputs and outputs, in the order of the kernel's arguments; then what is packed."""
        declared = tuple(tensor.buffer(name, problem) for name, tensor in self.declared(problem).items())
        return declared + tuple(packing.buffer(name, problem) for name, packing in self.packings.items())

    def packed(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """The inputs with all of `packings`, made of them: an own `inputs` ends with this."""
        return {**inputs, **{name: packing.pack(problem, inputs) for name, packing in self.packings.items()}}

    def declared(self, problem: Problem) -> dict[str, DeclaredTensor]:
        """Those of `tensors` that `problem` has."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.of(problem)}

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Fresh contents of all buffers that a kernel may read. The same (problem, family, seed) gives the
        same values on one kind of device. By default those of evo.task.tensors, smaller by a power of two
        where `compute` would overflow fp16, or with inputs of the family `huge` any type."""
        declared, computes = self.declared(problem), type(self).compute is not Task.compute
        far = computes and family in FAR
        drawn = draw(declared, problem, family, seed, torch_device, far=far)
        huge = family == "huge"
        written = {one.name: dtype_named(one.dtype) for one in self.buffers(problem) if one.written}
        bound = [n for n, kind in written.items() if kind.name == "fp16" or (huge and kind.floating)]
        free = [name for name in drawn if declared[name].between is None]
        farther, drawn = drawn, nearer(drawn, free, family) if far else drawn
        if computes and (far or bound):
            with contextlib.suppress(Exception):  # what is wrong with `compute` is said where it is checked
                if far:
                    drawn = within_reach(farther, drawn, partial(self._parts, problem))
                types = {name: written[name].torch for name in bound}
                drawn = fitted(drawn, partial(self._parts, problem), types, free, huge)
        return self.packed(problem, drawn)

    def _parts(self, problem: Problem, inputs: Tensors, dtype: str = "fp32") -> Iterator[dict[str, Tensor]]:
        """What `compute` gives in `dtype`, by parts."""
        for at, some in split(self.pieces(problem), problem, inputs):
            yield self._named(at, self.compute(at, precise(some, dtype)))

    def reference(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """All outputs, on the device of the inputs: of floating-point buffers in fp64, of integer ones in
        their own type or int64. By default `compute` in fp64."""
        return self._named(problem, self.compute(problem, precise(inputs, "fp64")))

    def own_families(self, problem: Problem) -> tuple[str, ...]:  # noqa: ARG002
        """Families of this problem alone: what a user recorded. None, unless evo.calls adds some."""
        return ()

    def measures(self, problem: Problem, inputs: Tensors) -> dict[str, float]:  # noqa: ARG002
        """Numbers of a family's inputs that `ranges` bound: by default the largest magnitude of each."""
        return {name: float(tensor.double().abs().max()) for name, tensor in inputs.items()}

    def honest(self, problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
        """The outputs as an honest kernel computes them, in the storage type and with its roundings: the
        gate's line is drawn from its errors. By default `compute` in fp32 (in fp64 where an input is) of
        inputs that are as far off as roundings on the way make them seem: of a few such, each element is the
        one that is farthest from the reference. Without `compute` it is the reference, rounded once."""
        found = self.reference(problem, inputs)
        if type(self).compute is not Task.compute:
            found = self._farthest(problem, inputs, found)
        types = {buffer.name: dtype_named(buffer.dtype).torch for buffer in self.buffers(problem)}
        return {name: output.to(types[name]) for name, output in found.items()}

    def _farthest(self, problem: Problem, inputs: Tensors, exact: Tensors) -> dict[str, Tensor]:
        """Of each output element the value, among those of several computations with roundings, that is
        farthest from `exact`; of integers what comes without roundings of the inputs."""
        declared, wide = self.declared(problem), precise(inputs, "fp32")
        summed = summed_sizes(declared) | set(self.summed)
        found = dict(exact)
        if not all(x.is_floating_point() for x in exact.values()):
            plain = self._named(problem, self.compute(problem, wide))
            found |= {name: x for name, x in plain.items() if not x.is_floating_point()}
        first = 0
        for several in rounded_on_the_way(wide, declared, summed, ROUNDED_DRAWS):
            outputs = self.draws(problem, several, first)
            first += len(several)
            for name, known in found.items():
                if known.is_floating_point():
                    apart = farthest(exact[name], [one[name] for one in outputs])
                    found[name] = apart if known is exact[name] else farthest(exact[name], [known, apart])
        return found

    def draws(self, problem: Problem, several: Sequence[Tensors], first: int) -> list[dict[str, Tensor]]:
        """What `compute` gives of each of `several` inputs with roundings. A task may do it at once."""
        found = []
        for number, inputs in enumerate(several, first):
            with functions_off(number):
                found.append(self._named(problem, self.compute(problem, inputs)))
        return found

    def _named(self, problem: Problem, found: Any) -> dict[str, Tensor]:
        """What `compute` returned, by the names of the outputs and in their shapes."""
        written = [buffer for buffer in self.buffers(problem) if buffer.written]
        if not isinstance(found, Mapping):
            several = found if isinstance(found, (tuple, list)) else (found,)
            found = dict(zip((buffer.name for buffer in written), several, strict=True))
        for buffer in written:
            if not same_order(found[buffer.name].shape, buffer.shape):
                given = tuple(found[buffer.name].shape)
                said = f"compute gives {buffer.name} the shape {given} for {problem.shape}"
                raise UsageError(said, f"what `tensors` says is {buffer.shape} there: one of both is wrong")
        return {buffer.name: found[buffer.name].reshape(buffer.shape) for buffer in written}

    def relations(self, problem: Problem) -> tuple[Relation, ...]:
        """Metamorphic relations that every correct kernel keeps, checked on a small problem. By default that
        rows are apart, where the task says so."""
        return (rows_apart(self.declared(problem)),) if self.independent_rows else ()

    def baselines(
        self,
        problem: Problem,
        torch_device: str = "cuda",
        patient: bool = False,
    ) -> dict[str, Baseline]:
        """Implementations to beat, by name; only those that run for this problem on this device. `patient`:
        also those whose first call takes seconds (compiled ones); that call may raise RuntimeError. By
        default `compute`, eager and compiled."""
        if type(self).compute is Task.compute:
            return {}
        found: dict[str, Baseline] = {"eager": partial(self.compute, problem)}
        if patient and torch_device.startswith("cuda"):
            import torch

            tuned = {"dynamic": False, "mode": "max-autotune-no-cudagraphs"}  # timing captures graphs itself
            found["compiled"] = torch.compile(partial(self.compute, problem), **tuned)
        return found

    def fallback(self, problem: Problem) -> Fallback | None:
        """What `evo.kernel` calls where no champion serves: differentiable by torch. By default what a
        `fallback.py` beside the task's file has, else `compute`."""
        if own := module_beside(self, "fallback.py"):
            return Fallback(own.NAME, lambda inputs: own.fallback(inputs, problem.flags))
        if type(self).compute is Task.compute:
            return None
        name = f"{self.name}.compute, in fp32"
        return Fallback(name, lambda inputs: self.compute(problem, precise(inputs, "fp32")))

    def flop(self, problem: Problem) -> int:
        """Floating-point operations of the definition. By default one for each element of all buffers."""
        return sum(math.prod(buffer.shape) for buffer in self.buffers(problem))

    def nbytes(self, problem: Problem) -> int:
        """Compulsory traffic: every input is read once, packed or not, every output written once."""
        buffers = (b for b in self.buffers(problem) if b.name not in self.packings)
        return sum(b.nbytes * (b.read + b.written) for b in buffers)

    # ---- what kernels are timed on

    @property
    def timing_inputs(self) -> Mapping[str, str]:
        """Inputs that kernels are timed on, by name, each with why it is there; the first one is the plain
        one. By default there is no other."""
        return {self.families.plain: "the plain family"}

    def timing_tensors(self, problem: Problem, name: str, seed: int, torch_device: str) -> dict[str, Tensor]:
        """Fresh contents of all buffers that a kernel may read, as `inputs` gives them, for one of
        `timing_inputs`. By default its names are those of families; where `inputs` is the default too, no
        row has a trait of its own, for those are there to show mistakes."""
        if type(self).inputs is Task.inputs:
            drawn = draw(self.declared(problem), problem, name, seed, torch_device, mixed=False)
            return self.packed(problem, drawn)
        return self.inputs(problem, name, seed, torch_device)

    # ---- what the gate tries

    def gate_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """Small problems around the boundaries of a candidate's `tiles`, cheapest and likeliest to fail
        first, that the same kernel must solve (what is baked into its code stays as it is). By default every
        size in turn is one around a tile, 2 or 3, and the others are no larger than just beyond the largest
        tile; and all sizes are equal."""
        small, free = self._small(problem, tile_range(tiles)[1] + 1)
        return around_tiles(small, free, tiles)

    def related_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:  # noqa: ARG002
        """More small problems that relations are checked on: the first of `gate_problems` is one anyway."""
        return ()

    def lone_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:
        """What finalists meet with one term far above all others."""
        return self.gate_problems(problem, tiles)

    def piece_problems(self, problem: Problem, tiles: Sequence[int]) -> tuple[Problem, ...]:  # noqa: ARG002
        """Small problems of more independent pieces than `gate_problems` have, along each size that counts
        pieces (three heads, two batches), if there is one: what goes wrong from the third on shows there."""
        return ()

    def ragged_problems(
        self,
        problem: Problem,
        tiles: Sequence[int],
        far: bool = False,
    ) -> tuple[Problem, ...]:
        """Every small problem whose size may be special to the same kernel: the gate takes a few, others for
        each seed, and for finalists all. `far`: these and larger ones, for finalists alone. By default each
        size in turn is everything up to two of the largest tile, with the others at 3 or 16; if `far`, up to
        eight of them also what is whole tiles, or one less or more, and what is just below its own."""
        return every_size(problem, *self._small(problem, 3), tiles, far)

    def _small(self, problem: Problem, largest: int) -> tuple[Problem, list[str]]:
        """`problem` with no size above `largest` but those that are fixed, and the names of the others."""
        free = [name for name in problem.sizes if name not in self.fixed]
        return problem.replace(**{name: min(problem.sizes[name], largest) for name in free}), free

    def some_ragged(
        self,
        problem: Problem,
        tiles: Sequence[int],
        count: int,
        seed: int,
        deep: bool,  # noqa: ARG002
    ) -> tuple[Problem, ...]:
        """About `count` of the ragged problems for one candidate, smaller ones first, others for each seed,
        and one of the larger ones. `deep`: also larger ones, where inputs that are new each time cost nothing
        more."""
        rng = random.Random(seed)
        count_near = len(self.ragged_problems(problem, tiles))
        every = self.ragged_problems(problem, tiles, far=True)
        chosen = rng.sample(range(count_near), min(count, count_near))
        chosen += rng.sample(range(count_near, len(every)), min(1, len(every) - count_near))
        return tuple(every[index] for index in sorted(chosen))
