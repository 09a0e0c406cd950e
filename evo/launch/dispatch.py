"""Which kernel of an exported folder serves a problem, by the table `dispatch.json` that lies beside it. It
needs neither a GPU nor torch. Nothing here imports evo.

A row of the table says which kernel to take for one problem on one GPU. A problem that has no row of its
own gets the kernel of the nearest one, in doublings of its sizes, whose code serves it. Rows for the very
GPU come before those for others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_ELEMENTS = 2**31
"""Of a tensor: beyond, an offset does not fit 32 bits with a sign."""
TOO_LARGE = f"a tensor has more than {MOST_ELEMENTS} elements, and it was not checked on that very problem"
"""Why a kernel does not serve a problem: those that it was checked on tell nothing of such offsets."""
Number = int | float | Mapping[str, Any]
"""A number, or `{"times": 2, "of": [["L", 64], ["B", 1]]}`: 2 x ceil(L / 64) x B; with `"over": 4` the parts'
product is divided by that, and at least 1; with `"most": 132` no more than that, with `"plus": 8` so much
more."""


@dataclass(frozen=True)
class Place:
    """A GPU: its full name, and its compute capability."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Decided:
    """What serves a problem: the kernel's record, its architecture and its launch; `kernel` is None where
    none does. `why` says so in words."""

    kernel: Mapping[str, Any] | None
    arch: str
    launch: Mapping[str, Any]
    why: str


class Dispatch:
    """The table of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record: Mapping[str, Any] = json.loads((folder / "dispatch.json").read_text(encoding="utf-8"))
        self.kernels: Mapping[str, Mapping[str, Any]] = {one["name"]: one for one in self.record["kernels"]}

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Each with `gpu`, `problem` (sizes, flags, dtype), `kernel`, and `median_us` and `regret` where
        they are known."""
        rows: Sequence[Mapping[str, Any]] = self.record["decisions"]
        return rows

    def decide(self, place: Place, dtype: str, flags: Mapping[str, Any], sizes: Mapping[str, int]) -> Decided:
        """The kernel for a problem on a GPU."""
        refusals = []
        large = is_large(self.shapes(flags, sizes).values())
        for row in self._nearest(place, dtype, flags, sizes):
            kernel = self.kernels[row["kernel"]]
            arch, refusal = arch_for(kernel["cubins"], place.capability), ""
            if not arch:
                refusal = f"it is compiled for {', '.join(kernel['cubins'])}"
            elif large and dict(row["problem"]["sizes"]) != dict(sizes):
                refusal = TOO_LARGE
            elif not serves(kernel, sizes):
                refusal = f"its code is made for {shape_text(kernel['reach'])}"
            else:
                launch = launch_of(kernel["launch"], sizes)
                if all(side <= most for side, most in zip(launch["grid"], MOST_GRID, strict=True)):
                    return Decided(kernel, arch, launch, _why(row, kernel, sizes, place))
                refusal = f"a grid of {launch['grid']}"
            refusals.append(f"{kernel['name']}: {refusal}")
        said = "; ".join(dict.fromkeys(refusals)) or f"no kernel is for {dtype}{flags_text(flags)}"
        return Decided(None, "", {}, f"no kernel serves it on {place.name}: {said}")

    def shapes(self, flags: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, tuple[Any, ...]]:
        """Of all buffers; None for a side that no size tells."""
        return {
            buffer["name"]: tuple(length_of(side, sizes) for side in buffer["sides"])
            for form in self.record["forms"]
            if dict(form["flags"]) == dict(flags)
            for buffer in form["buffers"]
        }

    def _nearest(
        self, place: Place, dtype: str, flags: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> list[Mapping[str, Any]]:
        fitting = [
            row
            for row in self.rows
            if row["problem"]["dtype"] == dtype and dict(row["problem"]["flags"]) == dict(flags)
        ]
        return sorted(
            fitting,
            key=lambda row: (
                row["gpu"] != place.name,
                not arch_for(self.kernels[row["kernel"]]["cubins"], place.capability),
                doublings(row["problem"]["sizes"], sizes),
                row.get("median_us") or math.inf,
            ),
        )

    def text(self) -> str:
        """The table for a person."""
        lines = [f"{self.record['task']}: {len(self.kernels)} kernels, else {self.fallback or 'nothing'}"]
        for row in self.rows:
            problem = row["problem"]
            time = f"{row['median_us']:.2f} µs" if row.get("median_us") else "not timed"
            regret = f", {row['regret']:.2f}x of the best" if row.get("regret") else ""
            about = f"{shape_text(problem['sizes'])}{flags_text(problem['flags'])} {problem['dtype']}"
            lines.append(f"  {row['gpu']}: {about}: {row['kernel']} ({time}{regret})")
        return "\n".join(lines)

    @property
    def fallback(self) -> str:
        """The name of what serves where no kernel does; "" where nothing does."""
        return str(self.record["fallback"])


def arch_for(cubins: Mapping[str, str], capability: tuple[int, int]) -> str:
    """The architecture whose cubin runs on a GPU, the closest one; "" where none does. A cubin runs on its
    own major version from its minor version on, and one of an "a" on its very version alone."""
    found = []
    for arch in cubins:
        digits = arch.removeprefix("sm_").rstrip("af")
        major, minor = int(digits[:-1]), int(digits[-1])
        own = arch[-1] == "a"
        if (major, minor) == capability or (not own and major == capability[0] and minor <= capability[1]):
            found.append((minor, own, arch))
    return max(found)[2] if found else ""


def serves(kernel: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
    """Whether a kernel's code serves a problem of these sizes."""
    reach = kernel["reach"].items()
    return all(low <= sizes[name] <= high and sizes[name] % step == 0 for name, (low, high, step) in reach)


def launch_of(said: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The launch for these sizes, as `LaunchConfig.to_json` writes it."""
    return {
        **said,
        "grid": [number(side, sizes) for side in said["grid"]],
        "args": [_argument(arg, sizes) for arg in said["args"]],
        "workspaces": [{**one, "nbytes": number(one["nbytes"], sizes)} for one in said["workspaces"]],
    }


def number(said: Number, sizes: Mapping[str, int]) -> Any:
    """A number that may depend on sizes."""
    if not isinstance(said, Mapping):
        return said
    product = 1
    for name, part in said["of"]:
        product *= -(-sizes[name] // part)
    if "over" in said:
        product = max(1, product // said["over"])
    product *= said["times"]
    return min(product, said.get("most", product)) + said.get("plus", 0)


def length_of(side: Any, sizes: Mapping[str, Any]) -> Any:
    """The length of a buffer's side: a size's name, a number or a formula; None where that is not known."""
    if isinstance(side, str):
        return sizes.get(side)
    known = not isinstance(side, Mapping) or all(name in sizes for name, _ in side["of"])
    return number(side, sizes) if known else None


def is_large(shapes: Iterable[Sequence[Any]]) -> bool:
    """Whether a tensor has more than MOST_ELEMENTS: then a kernel serves the very problem alone that it was
    checked on, here and in `evo.kernel`."""
    return any(math.prod(side for side in shape if side is not None) > MOST_ELEMENTS for shape in shapes)


def _argument(arg: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    found = dict(arg)
    if "value" in arg:
        found["value"] = number(arg["value"], sizes)
    for name in ("shape", "strides"):
        if name in arg:
            found[name] = [number(one, sizes) for one in arg[name]]
    return found


def doublings(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """How far the sizes of two problems are apart."""
    return sum(abs(math.log2(a[name] / b[name])) for name in a)


def shape_text(sizes: Mapping[str, Any]) -> str:
    """ "B=1 H=8 L=1..512 D=64 K=8..4096:8": the last one multiples of 8."""
    return " ".join(f"{name}={_range_text(size)}" for name, size in sizes.items())


def _range_text(size: Any) -> str:
    if isinstance(size, int):
        return str(size)
    low, high, step = size
    return str(low) if low == high else f"{low}..{high}" + (f":{step}" if step > 1 else "")


def flags_text(flags: Mapping[str, Any]) -> str:
    """ " causal=True": those that are set, each after a space."""
    return "".join(f" {name}={value}" for name, value in flags.items() if value)


def _why(row: Mapping[str, Any], kernel: Mapping[str, Any], sizes: Mapping[str, int], place: Place) -> str:
    far = doublings(row["problem"]["sizes"], sizes)
    near = "made for this very problem" if far == 0 else f"the nearest, {far:.1f} doublings away"
    time = (
        f"; {kernel['median_us']:.2f} µs for its own problem on {kernel['gpu']}"
        if kernel["median_us"]
        else ""
    )
    other = "" if row["gpu"] == place.name else f"; chosen for {row['gpu']}, and this is {place.name}"
    lost = row.get("left_out_regret") if far else None
    unknown = (
        f"; where a portfolio did not know that problem, it took {lost:.2f}x of the best" if lost else ""
    )
    return f"{near}{time}{unknown}{other}"
