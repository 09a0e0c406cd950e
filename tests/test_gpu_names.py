"""The names by which drivers and people know a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from evo.device.open import gpu_named
from evo.errors import UnknownName
from evo.gpu import KNOWN_GPUS, known_gpu


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("A100-SXM4-40GB", "A100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("nvidia h200", "H200"),
        (" rtx 4090 ", "RTX 4090"),
        ("4090", "RTX 4090"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_reports(said: str, name: str) -> None:
    found = known_gpu(said)
    assert found
    assert found.name == name
    assert gpu_named(said) == found


@pytest.mark.parametrize(
    "said",
    [
        "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GH200 480GB", "NVIDIA L40S", "NVIDIA A10", "", "NVIDIA",
    ],
)  # fmt: skip
def test_another_model_with_such_a_name_is_not_taken_for_it(said: str) -> None:
    assert known_gpu(said) is None
    with pytest.raises(UnknownName, match="unknown gpu"):
        gpu_named(said)


def test_warps_that_fill_no_quarter_of_an_sm_cost_registers_all_the_same() -> None:
    """Two CTAs of five warps put three warps into two of the four parts, each with 16,384 registers."""
    gpu = KNOWN_GPUS["H200"]
    assert [gpu.ctas_resident(160, registers, 0) for registers in (168, 176)] == [2, 1]
    assert gpu.residents(160, np.array([168, 176, 0]), 0).tolist() == [2, 1, 12]
    assert gpu.residents(np.array([128, 1024]), 64, np.array([0, 200_000])).tolist() == [8, 1]
