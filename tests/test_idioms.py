"""Honest idioms of CUDA, each a small kernel: none may be refused, on the emulator or on a GPU.

tests/idioms has the kernels; the tables below have what each computes of 1024 words x (u32), in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from idioms.answers import FLOATS, WORDS

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Device, Kernel
from evo.device.driver import gpu_names
from evo.device.emulator import EmulatorDevice
from evo.errors import MachineError, Unlaunchable
from evo.gate import Green, check
from evo.gpu import target
from evo.task import BufferSpec, Families, Task, Tolerance
from evo.trial import Binary, BufferArg, LaunchConfig, Problem, Workspace

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Path(__file__).parent / "idioms"
FILES = ("warp", "scalar", "grid")
PROBLEM = Problem("idiom", {"N": 1024}, "i32")
CLUSTERS = {
    "cluster_reads_its_neighbour": (2, 1, 1),
    "cluster_stores_asynchronously": (2, 1, 1),
    "cluster_reduces": (2, 1, 1),
}
COOPERATIVE = ("grid_sync", "grid_arrives_and_waits", "grid_reduction", "swap_max_of_floats")
CALLS_BY_REGISTER = ("function_pointers", "virtual_functions")
"""The emulator says by name that it has no such calls."""
SMEM = {"carved_shared_memory": 128 * 9}


@dataclass
class Idiom(Task):
    """What one idiom computes of 1024 words: words, which must be equal, or numbers."""

    entry: str
    name = "idiom"
    sizes = ("N",)
    fixed = ("N",)
    dtypes = ("i32",)
    families = Families(plain="words")
    problems: Mapping[str, tuple[Problem, ...]] = None  # type: ignore[assignment]
    tolerance = Tolerance(row_floor=16, few_rows_floor=16, element_floor=16)
    """The functions of CUDA's library are off by a few units."""

    def __post_init__(self) -> None:
        self.problems = {"only": (PROBLEM,)}

    def buffers(self, problem: Problem) -> tuple[BufferSpec, ...]:
        out = BufferSpec("f", (32, 32), "fp32", "out")
        if self.entry in WORDS:
            out = BufferSpec("o", (32, 32), "i32", "out")
        return (BufferSpec("x", (problem["N"],), "i32", "in"), out)

    def inputs(self, problem: Problem, family: str, seed: int, torch_device: str) -> dict[str, Tensor]:  # noqa: ARG002
        import torch

        words = np.random.default_rng(seed).integers(0, 2**31, problem["N"], dtype=np.int32)
        return {"x": torch.from_numpy(words).to(torch_device)}

    def reference(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        import torch

        x = inputs["x"].cpu().numpy().astype(np.uint64)
        if self.entry in WORDS:
            words = WORDS[self.entry](x) & 0xFFFFFFFF
            found = torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())
            return {"o": found.reshape(32, 32).to(inputs["x"].device)}
        numbers: npt.NDArray[np.float64] = FLOATS[self.entry](x)
        return {"f": torch.from_numpy(numbers).reshape(32, 32).to(inputs["x"].device)}

    def launch(self) -> LaunchConfig:
        out = "o" if self.entry in WORDS else "f"
        args = [BufferArg(name) for name in ("x", "o", "f", "w")]
        workspaces = [Workspace("w", 8192, zeroed=True), Workspace("f" if out == "o" else "o", 4096)]
        cluster = CLUSTERS.get(self.entry, (1, 1, 1))
        smem = SMEM.get(self.entry, 0)
        return LaunchConfig(
            (8, 1, 1), (128, 1, 1), smem, tuple(args), cluster, tuple(workspaces), self.entry in COOPERATIVE
        )


def verdict(entry: str, device: Device, binary: Binary) -> Green:
    task = Idiom(entry)
    launch = task.launch()

    def kernel_for(_problem: Problem) -> tuple[Kernel, LaunchConfig]:
        return device.load(binary, launch), launch

    return check(kernel_for, device, task, PROBLEM, (32,), seed=3)


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[[str, str], Binary]]:
    """The binary of an entry: all of a file's are compiled at once."""
    try:
        compiler: Compiler = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(none.message)

    @cache
    def file(name: str, arch: str) -> Binary:
        return compiler.compile((FOLDER / f"{name}.cu").read_text(), first_of(name), arch)

    def of(entry: str, arch: str) -> Binary:
        return replace(file(FILE_OF[entry], arch), entry=entry)

    yield of
    compiler.close()


def entries(name: str) -> list[str]:
    text = (FOLDER / f"{name}.cu").read_text()
    return [line[7 : line.index(")")] for line in text.splitlines() if line.startswith("KERNEL(")]


def first_of(name: str) -> str:
    return entries(name)[0]


FILE_OF = {entry: name for name in FILES for entry in entries(name)}


@pytest.fixture(scope="module")
def emulator() -> EmulatorDevice:
    try:
        return EmulatorDevice(target("sm_90a"))
    except MachineError as none:
        pytest.skip(none.message)


def test_every_idiom_has_an_answer() -> None:
    assert len(FILE_OF) >= 60
    assert set(FILE_OF) == set(WORDS) | set(FLOATS)


@pytest.mark.nvcc
@pytest.mark.parametrize("entry", CALLS_BY_REGISTER)
def test_what_the_emulator_lacks_is_named(
    entry: str, compiled: Callable[[str, str], Binary], emulator: EmulatorDevice
) -> None:
    binary = compiled(entry, "sm_90a")
    assert binary.state == ()
    with pytest.raises(Unlaunchable, match="indirect call"):
        verdict(entry, emulator, binary)


@pytest.mark.nvcc
@pytest.mark.parametrize("entry", [entry for entry in FILE_OF if entry not in CALLS_BY_REGISTER])
def test_an_honest_idiom_is_green(
    entry: str, compiled: Callable[[str, str], Binary], emulator: EmulatorDevice
) -> None:
    green = verdict(entry, emulator, compiled(entry, "sm_90a"))
    assert green.launches >= 6
    assert math.isfinite(max((e.row_error for e in green.errors), default=0.0))


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("entry", FILE_OF)
def test_an_honest_idiom_is_green_on_a_gpu(entry: str, compiled: Callable[[str, str], Binary]) -> None:
    from evo.device.cuda import CudaDevice

    with_gpu = CudaDevice(compiler=find_compiler(None, Cache(default_folder())))
    if with_gpu.gpu.arch != "sm_90a":
        pytest.skip("the idioms are made for sm_90a")
    assert verdict(entry, with_gpu, compiled(entry, "sm_90a")).launches >= 6
