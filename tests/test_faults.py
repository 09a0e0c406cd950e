"""Planted faults are reported for the right reason at the right line; honest kernels are never reported."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache as once

import numpy as np
import pytest
from faults import plant
from ptx.running import Array, aligned, regions_of

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device.emulator import EmulatorDevice, EmulatorKernel, verdict
from evo.errors import CandidateError
from evo.gpu import KNOWN_GPUS
from evo.trial import Argument, BufferArg, LaunchConfig, ScalarArg, TensorMapArg

pytestmark = pytest.mark.nvcc

B = BufferArg


@once
def compiler() -> Compiler:
    return find_compiler(None, Cache(default_folder()))


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """The compiler has a process of its own, which ends with the tests of this file."""
    yield
    if compiler.cache_info().currsize:
        compiler().close()
        compiler.cache_clear()


@once
def device() -> EmulatorDevice:
    return EmulatorDevice(KNOWN_GPUS["H200"], instruction_budget=2_000_000)


def halves(seed: int, *shape: int) -> Array:
    return _placed(np.random.default_rng(seed).standard_normal(shape).astype(np.float16))


def _placed(values: Array, poison: int | None = None) -> Array:
    raw = aligned(values.nbytes, 0xA5 if poison is None else poison)
    out = raw.view(values.dtype).reshape(values.shape)
    if poison is None:
        out[:] = values
    return out


def unwritten(dtype: str, *shape: int) -> Array:
    return _placed(np.empty(shape, dtype), poison=0xA5)


def launch_of(kernel: str) -> tuple[LaunchConfig, dict[str, Array], tuple[str, ...]]:
    """A launch, its arrays, and which of them the kernel writes."""
    args: tuple[Argument, ...]
    if kernel == "flash":
        length = 130
        arrays = {n: halves(i, 1, length, 64) for i, n in enumerate("qkv")} | {
            "o": unwritten("f2", 1, length, 64)
        }
        args = (B("q"), B("k"), B("v"), B("o"), ScalarArg(length, "i32"), ScalarArg(0.125 * 1.442695, "f32"))
        return LaunchConfig((3, 1, 1), (128, 1, 1), 64 * 128 * 5, args), arrays, ("o",)
    if kernel == "wmma":
        arrays = {
            "q": halves(1, 64, 32),
            "k": halves(2, 96, 32),
            "v": halves(3, 96, 32),
            "o": unwritten("f4", 64, 32),
        }
        smem = 32 * 40 * (4 + 2 + 2 + 2 + 4)
        args = (B("q"), B("k"), B("v"), B("o"), ScalarArg(96, "i32"))
        return LaunchConfig((2, 1, 1), (64, 1, 1), smem, args), arrays, ("o",)
    if kernel == "simt":
        ones = _placed(np.ones(4096, np.float32))
        arrays = {"in": ones, "partial": unwritten("f4", 4), "tickets": _placed(np.zeros(1, np.uint32)),
                  "out": unwritten("f4", 1)}  # fmt: skip
        args = (B("in"), B("partial"), B("tickets"), B("out"), ScalarArg(4096, "i32"))
        return LaunchConfig((4, 1, 1), (256, 1, 1), 0, args), arrays, ("partial", "tickets", "out")
    if kernel == "hopper":
        arrays = {"a": halves(1, 128, 320), "b": halves(2, 64, 320), "c": unwritten("f2", 128, 64)}
        args = (
            TensorMapArg("a", "fp16", (320, 128), (640,), (64, 64), 128),
            TensorMapArg("b", "fp16", (320, 64), (640,), (64, 64), 128),
            TensorMapArg("c", "fp16", (64, 128), (128,), (32, 64), 0),
            ScalarArg(320, "i32"),
        )
        return LaunchConfig((2, 1, 1), (160, 1, 1), 4 * 8192 + 4096 + 64, args), arrays, ("c",)
    if kernel == "registers":
        arrays = {"in": _placed(np.arange(512, dtype=np.float32)), "out": unwritten("f4", 512)}
        args = (B("in"), B("out"), ScalarArg(4, "i32"))
        return LaunchConfig((1, 1, 1), (256, 1, 1), 0, args), arrays, ("out",)
    arrays = {"in": _placed(np.arange(512, dtype=np.float32)), "out": unwritten("f4", 2, 128)}
    args = (B("in"), B("out"), ScalarArg(256, "i32"))
    return LaunchConfig((4, 1, 1), (128, 1, 1), 0, args, cluster=(2, 1, 1)), arrays, ("out",)


def expected(kernel: str, arrays: dict[str, Array]) -> tuple[str, np.ndarray]:
    """Name and exact content of the kernel's result."""
    x = {name: array.astype(np.float64) for name, array in arrays.items() if array.dtype != np.uint32}
    if kernel == "flash":
        return "o", _softmax(x["q"] @ x["k"].swapaxes(1, 2) / 8, np.e) @ x["v"]
    if kernel == "wmma":
        return "o", _softmax(x["q"] @ x["k"].T / 8, 2.0) @ x["v"]
    if kernel == "simt":
        return "out", np.array([4096.0])
    if kernel == "hopper":
        return "c", x["a"] @ x["b"].T
    if kernel == "registers":
        return "out", x["in"] + 1
    rows = x["in"].reshape(2, 2, 128)
    return "out", rows.sum(axis=1)


def _softmax(scores: np.ndarray, base: float) -> np.ndarray:
    p = base ** (scores - scores.max(axis=-1, keepdims=True))
    result: np.ndarray = p / p.sum(axis=-1, keepdims=True)
    return result


def relative_error(kernel: str, arrays: dict[str, Array]) -> float:
    name, exact = expected(kernel, arrays)
    got = arrays[name].astype(np.float64)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact)) if np.isfinite(got).all() else np.inf


def loaded(source: str, launch: LaunchConfig) -> EmulatorKernel:
    return device().load(compiler().compile(source, "fault", "sm_90a"), launch)


@pytest.mark.parametrize("schedule", device().schedules)
@pytest.mark.parametrize("kernel", plant.kernels())
def test_an_honest_kernel_is_right_and_not_reported(kernel: str, schedule: str) -> None:
    launch, arrays, written = launch_of(kernel)
    regions = regions_of(arrays, written)
    if "tickets" in regions:
        regions["tickets"] = regions_of({"tickets": arrays["tickets"]}, ("tickets",), initialised=True)[
            "tickets"
        ]
    loaded(plant.honest(kernel), launch).launch(launch, regions, schedule)
    assert relative_error(kernel, arrays) < 2e-3


@pytest.mark.parametrize("fault", [f for k in plant.kernels() for f in plant.faults(k)],
                         ids=lambda f: f"{f.kernel}-{f.name}")  # fmt: skip
def test_a_planted_fault_is_reported_where_it_is(fault: plant.Fault) -> None:
    """Under at least one schedule with the right line; under no schedule for a reason that is not its own."""
    reports = []
    right = False
    for schedule in device().schedules:
        launch, arrays, written = launch_of(fault.kernel)
        regions = regions_of(arrays, written)
        if "tickets" in regions:
            regions["tickets"] = regions_of({"tickets": arrays["tickets"]}, ("tickets",), True)["tickets"]
        execution = loaded(fault.source, launch).execute(launch, regions, schedule)
        if execution.fault is None:
            right |= fault.wrong_result and relative_error(fault.kernel, arrays) > 1e-2
            reports.append(f"{schedule}: no report, error {relative_error(fault.kernel, arrays):.1e}")
            continue
        error = verdict(execution.fault)
        assert isinstance(error, CandidateError), error
        line = execution.fault.line
        reports.append(f"{schedule}: {error.reason} at line {line}: {execution.fault.message}")
        assert error.reason in fault.reasons, "\n".join(reports)
        right |= error.reason in fault.seen.get(line, ())
    assert right, "\n".join(reports)
