"""The emulator's estimate of a time: what it grows with, and that it says what it is."""

from __future__ import annotations

from dataclasses import replace

from evo.device.emulator.estimate import estimate
from evo.device.emulator.fitted import is_fitted
from evo.gpu import KNOWN_GPUS
from evo.trial import LaunchConfig, Resources

WORK = {
    "ctas": 64.0, "warps": 256.0, "instructions": 1.3e6, "inst_int": 3e5, "inst_fp32": 4e5, "inst_mufu": 7e4,
    "mufu": 2.2e6, "inst_tensor": 1.3e5, "tensor_flop": 5.4e8, "shared_wavefronts": 4e5,
    "inst_matrix_move": 5e4,
    "global_sectors_read": 1.5e5, "global_sectors_written": 1.6e4, "inst_barrier": 4e3,
}  # fmt: skip
SHAPE = LaunchConfig((8, 8, 1), (128, 1, 1), 40960, ())


def test_more_work_never_takes_less_time() -> None:
    gpu, few = KNOWN_GPUS["H200"], Resources(128, 0, 0, 0)
    base = estimate(WORK, few, SHAPE, gpu, 0).us
    for name, amount in WORK.items():
        if name not in ("ctas", "warps"):
            assert estimate({**WORK, name: amount * 4}, few, SHAPE, gpu, 0).us >= base, name
    assert estimate(WORK, Resources(128, 4000, 0, 0), SHAPE, gpu, 0).us > base


def test_a_slower_gpu_takes_longer() -> None:
    few = Resources(128, 0, 0, 0)
    assert (
        estimate(WORK, few, SHAPE, KNOWN_GPUS["L4"], 0).us
        > estimate(WORK, few, SHAPE, KNOWN_GPUS["H200"], 0).us
    )


def test_an_estimate_says_that_it_is_one() -> None:
    found = estimate(WORK, Resources(128, 0, 0, 0), SHAPE, KNOWN_GPUS["H200"], 0)
    assert "a guess: the model was fitted to other kernels, not measured" in found.explain()
    assert "an estimate, not measured" in replace(found, fitted=True).explain()
    assert is_fitted("attention", "flash_mma")
    assert not is_fitted("attention", "triton_flash")
    assert not is_fitted("rowsum", "flash_mma")
