"""Recorded spaces: every feasible point of a kernel's space with its time, for searches that run no kernel.

Read are Kernel Tuner's cache files and T4 files (JSON, plain or compressed by gzip or xz; the format is that
of https://github.com/AutoTuningAssociation/benchmark_hub), and the same as arrays (.npz: `index`, `time_ms`,
`cost_s`, `names`, `device`, `values_<name>`).
"""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evo.gpu import Limits, target
from evo.space import FeasibleSet, Parameter, Space
from evo.trial import Point, Problem, Value, digest_of

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Recorded:
    """A recorded space of `n` points. `index` (n, parameters): positions in `values` of each name; `time_ms`
    (n,): nan where the point failed to compile, to run or to be right; `cost_s` (n,): what trying it took."""

    name: str
    device: str
    values: Mapping[str, tuple[Value, ...]]
    index: Indices
    time_ms: Floats
    cost_s: Floats

    def __len__(self) -> int:
        return len(self.time_ms)

    @property
    def optimum_ms(self) -> float:
        return float(np.nanmin(self.time_ms))

    @property
    def fingerprint(self) -> str:
        """Equal for the same points with the same times under the same name."""
        return f"{self.name} {digest_of(self.index.astype('<i4').tobytes(), self.time_ms.tobytes())[:12]}"

    @property
    def feasible(self) -> FeasibleSet:
        """The recorded points as the feasible set of a space without rules of its own: what is not recorded
        was refused by rules when the space was recorded."""
        space = Space(tuple(_parameter(name, v) for name, v in self.values.items()))
        limits, problem = Limits.of(target("sm_80")), Problem(self.name, {}, "fp32")
        return FeasibleSet(space, limits, problem, self.index.astype(np.int16), {}, True, space.size)

    def rows(self) -> dict[tuple[Value, ...], int]:
        """The number of each point, by its values."""
        columns = [[v[i] for i in self.index[:, j]] for j, v in enumerate(self.values.values())]
        return {point: row for row, point in enumerate(zip(*columns, strict=True))}

    def score_us(self, row: int) -> float | None:
        """What a strategy is told of a point: None where it failed."""
        time = float(self.time_ms[row])
        return None if np.isnan(time) else 1e3 * time


def key_of(point: Point) -> tuple[Value, ...]:
    """A point as `Recorded.rows` knows it."""
    return tuple(point.values())


def _parameter(name: str, values: tuple[Value, ...]) -> Parameter:
    return Parameter(name.lower(), values, values[0])


def load(path: Path) -> Recorded:
    """A recorded space from its file. ValueError where the file is of none of the formats."""
    if path.suffix == ".npz":
        return _from_arrays(path)
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    elif path.suffix == ".xz":
        raw = lzma.decompress(raw)
    content = json.loads(raw)
    name = path.name.split(".json")[0]
    if "cache" in content:
        entries = list(_cache_entries(content))
        return _from_entries(name, content.get("device_name", ""), content["tune_params_keys"], entries)
    if "results" in content:
        entries = list(_t4_entries(content))
        device = content.get("metadata", {}).get("device", "")
        return _from_entries(name, device, list(entries[0][0]), entries)
    raise ValueError(f"{path}: neither a Kernel Tuner cache nor a T4 file")


def _from_arrays(path: Path) -> Recorded:
    with np.load(path) as arrays:
        names = [str(n) for n in arrays["names"]]
        values = {n: tuple(v.item() for v in arrays[f"values_{n}"]) for n in names}
        index, time_ms, cost_s = arrays["index"], arrays["time_ms"], arrays["cost_s"]
        device = str(arrays["device"])
    return Recorded(path.stem, device, values, index.astype(np.intp), time_ms, cost_s)


Entry = tuple[Mapping[str, Value], float, float]
"""A point, its time in ms (nan: failed) and the seconds it took to try."""


def _cache_entries(content: Mapping[str, Any]) -> Iterator[Entry]:
    spent = ("compile_time", "verification_time", "benchmark_time", "framework_time")
    for entry in content["cache"].values():
        point = {name: entry[name] for name in content["tune_params_keys"]}
        cost = sum(float(entry.get(name) or 0) for name in spent) / 1e3
        yield point, _number(entry.get("time")), cost


def _t4_entries(content: Mapping[str, Any]) -> Iterator[Entry]:
    for result in content["results"]:
        times = result["times"]
        cost = sum(times.get(name) or 0 for name in ("compilation", "framework", "validation"))
        cost += times["benchmark"] if "benchmark" in times else sum(times.get("runtimes", ()))
        time = next((m["value"] for m in result["measurements"] if m["name"] == "time"), None)
        failed = result["invalidity"] != "correct"
        yield result["configuration"], float("nan") if failed else _number(time), cost / 1e3


def _number(value: object) -> float:
    """Failures have their error's name where the time would be."""
    return float(value) if isinstance(value, (int, float)) and value < 1e20 else float("nan")


def _from_entries(name: str, device: str, names: Sequence[str], entries: Sequence[Entry]) -> Recorded:
    values: dict[str, tuple[Value, ...]] = {}
    for parameter in names:
        seen = dict.fromkeys(point[parameter] for point, _, _ in entries)
        ordered = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in seen)
        values[parameter] = tuple(sorted(seen) if ordered else seen)
    at = {p: {v: i for i, v in enumerate(v)} for p, v in values.items()}
    index = np.array([[at[p][point[p]] for p in names] for point, _, _ in entries], np.intp)
    return Recorded(
        name,
        device,
        values,
        index,
        np.array([time for _, time, _ in entries]),
        np.array([cost for _, _, cost in entries]),
    )
