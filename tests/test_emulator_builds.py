"""The interpreter is built for what the CPU has: each build computes the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from ptx.catalogue import programs, wanted
from ptx.programs import disagreements
from ptx.running import answer
from ptx.test_conformance import DIFFERENT

from evo.compile import host_compiler
from evo.device.emulator import EmulatorDevice, cpu_instructions, load_interpreter
from evo.gpu import KNOWN_GPUS

Words = npt.NDArray[np.uint32]
Doubles = npt.NDArray[np.float64]
HERE = Path(__file__).parent
SOURCES = HERE.parent / "evo" / "device" / "emulator" / "ptx"
BUILDS = ["x86-64", "x86-64-v3", "x86-64-v4"]
PATHS = {"x86-64": "portable", "x86-64-v3": "avx2", "x86-64-v4": "avx512"}


def runs_here(build: str) -> bool:
    """Whether this CPU has the instructions of a build."""
    here = cpu_instructions()
    return here in BUILDS and BUILDS.index(build) <= BUILDS.index(here)


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[str, Words]]:
    """The path of a build, and its products: (400, 128 of A, 64 of B, 128 of C, 128 of the result) words."""

    @cache
    def of(build: str) -> tuple[str, Words]:
        program = tmp_path_factory.mktemp("products") / build
        flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", f"-march={build}"]
        sources = [str(HERE / "products.cpp"), str(SOURCES / "tensor.cpp")]
        subprocess.run(
            [host_compiler(), *flags, f"-I{SOURCES}", *sources, "-o", str(program)],
            check=True, capture_output=True,
        )  # fmt: skip
        said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        path, *lines = said.splitlines()
        return path, np.array([[int(word, 16) for word in line.split()] for line in lines], np.uint32)

    return of


def numbers(pairs: Words, bf16: bool) -> tuple[Doubles, Doubles]:
    """The low and the high elements of packed pairs."""
    halves = [(pairs >> shift & 0xFFFF).astype(np.uint32) for shift in (0, 16)]
    if bf16:
        low, high = ((half << 16).view(np.float32).astype(np.float64) for half in halves)
    else:
        low, high = (half.astype(np.uint16).view(np.float16).astype(np.float64) for half in halves)
    return low, high


def exact(words: Words, bf16: bool) -> tuple[Doubles, Doubles]:
    """What a product must be in fp64, and the sum of its magnitudes: (128,) each, as fragments lie. Lane
    4g + t holds rows g and g + 8 of A, columns g of B, and columns 2t and 2t + 1 of C."""
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    lanes = np.arange(32)
    g, t = lanes // 4, lanes % 4
    for number in range(4):
        low, high = numbers(words[32 * number :][:32], bf16)
        row, column = g + 8 * (number % 2), 2 * t + 8 * (number // 2)
        a[row, column], a[row, column + 1] = low, high
    for number in range(2):
        low, high = numbers(words[128 + 32 * number :][:32], bf16)
        b[2 * t + 8 * number, g], b[2 * t + 1 + 8 * number, g] = low, high
    c = words[192:320].view(np.float32).astype(np.float64).reshape(4, 32)
    with np.errstate(invalid="ignore"):
        product, size = a @ b, np.abs(a) @ np.abs(b)
    found, sizes = np.empty((4, 32)), np.empty((4, 32))
    for number in range(4):
        at = g + 8 * (number // 2), 2 * t + number % 2
        found[number], sizes[number] = product[at] + c[number], size[at] + np.abs(c[number])
    return found.ravel(), sizes.ravel()


@pytest.mark.parametrize("build", BUILDS)
def test_products_are_right_to_the_roundings_of_their_sums(
    build: str, products: Callable[[str], tuple[str, Words]]
) -> None:
    if not runs_here(build):
        pytest.skip(f"this CPU has no {build}")
    path, words = products(build)
    assert path == PATHS[build]
    assert len(words) == 400
    finite = 0
    for number, row in enumerate(words):
        found = row[320:].view(np.float32).astype(np.float64)
        right, sizes = exact(row, bf16=number >= 200)
        ordinary = np.isfinite(right)
        errors = np.abs(found[ordinary] - right[ordinary])
        assert (errors <= 16 * 2.0**-24 * sizes[ordinary]).all()
        assert (np.isnan(found) == np.isnan(right)).all()
        assert (found[np.isinf(right)] == right[np.isinf(right)]).all()
        finite += int(ordinary.sum())
    assert 0.5 * words[:, 320:].size < finite < words[:, 320:].size


def test_both_vector_builds_give_the_same_bits(products: Callable[[str], tuple[str, Words]]) -> None:
    if not runs_here("x86-64-v4"):
        pytest.skip("this CPU has no AVX-512")
    (_, avx512), (_, avx2) = products("x86-64-v4"), products("x86-64-v3")
    same = (avx512 == avx2) | (np.isnan(avx512.view(np.float32)) & np.isnan(avx2.view(np.float32)))
    assert same.all()


@pytest.mark.slow  # it builds the interpreter again
@pytest.mark.parametrize("build", BUILDS)
def test_each_build_answers_as_a_gpu_does(build: str) -> None:
    """And as the build for this CPU, to the bit where both are of vectors: products add in one order."""
    if not runs_here(build):
        pytest.skip(f"this CPU has no {build}")
    own = EmulatorDevice(KNOWN_GPUS["H200"])
    other = EmulatorDevice(KNOWN_GPUS["H200"], interpreter=load_interpreter(None, build))
    assert other.interpreter.build == PATHS[build]
    same = "portable" not in (own.interpreter.build, other.interpreter.build)
    for program in programs():
        for schedule in own.schedules:
            here, got = answer(program, schedule, own), answer(program, schedule, other)
            assert got == here or not same, program.name
            for part in program.slices:
                expected = None if part.label in DIFFERENT else wanted(part, here)
                assert expected is None or not disagreements(part, got, expected), part.label
