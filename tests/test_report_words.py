"""How times, sums and kernels are written."""

from __future__ import annotations

import pytest

from evo import report
from evo.report import intensity_text, several


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5123, "0.512"),
        (0.9996, "1.00"),
        (8.531, "8.53"),
        (9.996, "10.0"),
        (72.49, "72.5"),
        (99.96, "100"),
        (292.3, "292"),
        (4114.2, "4114"),
    ],
)
def test_three_digits(value: float, written: str) -> None:
    assert report.three_digits(value) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.4, "0 s"),
        (45, "45 s"),
        (59.6, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (49320, "13 h 42 min"),
    ],
)
def test_duration(seconds: float, written: str) -> None:
    assert report.duration(seconds) == written


def test_small_numbers_are_not_rounded_away() -> None:
    assert [intensity_text(x) for x in (255.7, 9.96, 1 / 6)] == [
        "256 FLOP a byte", "9.96 FLOP a byte", "0.167 FLOP a byte"
    ]  # fmt: skip
    assert [several(n, "trial") for n in (0, 1, 1512)] == ["0 trials", "1 trial", "1,512 trials"]


def test_money() -> None:
    assert report.dollars(14 * 3600, 0.51) == "$7.14"


def test_what_a_baseline_has_chosen_stands_behind_its_kernel() -> None:
    name = "void tuned::triton_tem_fused_flex_attention_0<int, (bool)1>(float*) [BLOCK_M=64 num_warps=4]"
    text = report.kernels_text(["Memset (Device)", "void at::native::copy<float>(int)", name])
    assert text == "copy, triton_tem_fused_flex_attention_0 [BLOCK_M=64 num_warps=4]"
