"""`evo emulate`: its launch and arguments, and what it tells of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import Evo
from ptx.programs import entry
from ptx.running import COPY, binary_of, h200

from evo.device.emulator import EmulatorDevice, EmulatorKernel
from evo.errors import UsageError
from evo.explain.emulation import Emulation, emulate, entries_in
from evo.explain.launch_arguments import filled, parse_arguments, parse_launch
from evo.report.emulation import emulation_lines, emulation_record
from evo.trial import BufferArg, LaunchConfig, ScalarArg, TensorMapArg


def test_a_launch_is_read() -> None:
    assert parse_launch("grid=8x4,block=128,smem=40K,cluster=2") == {
        "grid": (8, 4, 1), "block": (128, 1, 1), "smem_bytes": 40960, "cluster": (2, 1, 1),
        "cooperative": False
    }  # fmt: skip


@pytest.mark.parametrize("text", ["grid=0", "grid=1x2x3x4", "threads=3", "smem=x", "grid"])
def test_a_malformed_launch_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_launch(text)


@pytest.mark.parametrize(
    "text",
    ["in:f17:4", "in:f16:0", "in:f16", "i32:x", "i32:99999999999", "u32:-1", "what:f16:4", "in:f16:4:often",
             "map:in:f16:8x8:8", "map:in:f16:8x8", "in:f16:4:1e"],
)  # fmt: skip
def test_a_malformed_argument_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arguments([text])


def test_arguments_are_read() -> None:
    args, buffers = parse_arguments(
        ["q=in:f16:4x64:ones", "out:f32:7", "f32:0.5", "m=map:in:bf16:128x64:16x64:128"]
    )
    assert args == (
        BufferArg("q"),
        BufferArg("arg1"),
        ScalarArg(0.5, "f32"),
        TensorMapArg("m", "bf16", (64, 128), (128,), (64, 16), 128),
    )
    assert [b.nbytes for b in buffers] == [512, 28, 16384]


@pytest.mark.parametrize("fill", ["normal", "uniform", "ones", "zeros", "arange", "poison", "2.5", "nan"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i32", "u8", "i64"])
def test_buffers_are_filled_reproducibly(fill: str, dtype: str) -> None:
    if fill == "nan" and dtype[0] in "iu":
        pytest.skip("integers have no NaN")
    _, (buffer,) = parse_arguments([f"in:{dtype}:100:{fill}"])
    once, again = filled(buffer, 3), filled(buffer, 3)
    assert once.tobytes() == again.tobytes()
    assert once.nbytes == buffer.nbytes


def test_kernels_of_a_source_are_found() -> None:
    source = """
    // extern "C" __global__ void no(int);
    extern "C" __global__ void __launch_bounds__(4 * 32, 2) one(const float* x) {}
    extern "C" __global__ __cluster_dims__(2, 1, 1) void two(int n) { }
    __global__ void mangled(int n) {}
    """
    assert entries_in(source) == ["one", "two"]


def emulated(body: str, schedules: tuple[str, ...] = ("eager", "reversed")) -> Emulation:
    args, buffers = parse_arguments(["in:u32:64:arange", "out:u32:64"])
    config = LaunchConfig((1, 1, 1), (64, 1, 1), 0, args)
    return emulate(EmulatorKernel(h200(), binary_of(entry(COPY + body))), config, buffers, schedules)


def test_an_emulation_tells_what_was_counted() -> None:
    result = emulated("ld.global.u32 %v, [%in]; st.global.u32 [%out], %v;")
    text = "\n".join(emulation_lines(result))
    assert result.green
    assert "no error" in text
    assert "no shared-memory bank conflicts" in text
    assert "a guess: the model was fitted to other kernels, not measured" in text
    assert json.loads(json.dumps(emulation_record(result)))["green"]


def test_an_emulation_tells_of_a_race_once() -> None:
    result = emulated(".shared .b32 s; st.shared.u32 [s], %t; st.global.u32 [%out], 1;")
    text = "\n".join(emulation_lines(result))
    assert not result.green
    assert set(result.faults) == {"eager", "reversed"}
    assert "PTX line" in text


def test_bank_conflicts_are_counted() -> None:
    result = emulated("""
        .shared .align 16 .b8 s[8192]; .reg .b32 %a; mov.u32 %a, s; mad.lo.u32 %a, %t, 128, %a;
        st.shared.u32 [%a], %t; ld.shared.u32 %v, [%a]; st.global.u32 [%out], %v;""")
    counters = result.runs[0].execution.counters
    assert counters["shared_wavefronts_ideal"] == 4
    assert counters["shared_wavefronts"] == 4 * 32


def test_an_estimate_counts_what_dram_must_bring() -> None:
    args, buffers = parse_arguments(["in:u32:1000000", "out:u32:1000000"])
    slow = EmulatorDevice(replace(h200().gpu, l2_bytes=1 << 20, dram_gbps=100.0))
    copy = binary_of(entry(COPY + "ld.global.u32 %v, [%in]; st.global.u32 [%out], %v;"))
    config = LaunchConfig((1, 1, 1), (64, 1, 1), 0, args)
    found = emulate(EmulatorKernel(slow, copy), config, buffers, ["default"])
    assert found.estimate is not None
    assert found.estimate.bound == "memory"
    assert found.estimate.us > 8_000_000 / 100e3


@pytest.mark.nvcc
def test_a_request_that_is_wrong_is_no_bug(evo: Evo, tmp_path: Path) -> None:
    kernel = tmp_path / "k.cu"
    kernel.write_text('extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1; }')
    said = evo("emulate", str(kernel), "--launch", "grid=1,block=32")
    assert (said.code, "hint: an --arg for each" in said.err) == (2, True)
    kernel.write_text('extern "C" __global__ void k(float* y) { y = 1; }')
    said = evo("emulate", str(kernel), "--launch", "grid=1,block=32", "--arg", "out:f32:32")
    assert (said.code, said.err.startswith("error: compiler error")) == (4, True)
