"""The suites of evo.testing, run on everything that evo ships and on the toy tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.device.driver import gpu_names
from evo.strategy.evolution.evo import Evo
from evo.strategy.nsga2 import Nsga2
from evo.strategy.random import Random
from evo.strategy.tpe import Tpe
from evo.testing import DeviceTests, StrategyTests, TaskTests, TemplateTests

TOYS = (Path(__file__).parent / "toys",)


class TestAttention(TaskTests):
    task = "attention"


class TestRowSum(TaskTests):
    task, folders = "row_sum", TOYS


class TestExtremes(TaskTests):
    task, folders = "extremes", TOYS


class TestScale(TaskTests):
    task, folders = "scale", TOYS


@pytest.mark.nvcc
class TestScalar(TemplateTests):
    task, template, problems, points = "attention", "scalar", ("1,1,64,64",), 1


@pytest.mark.nvcc
class TestWmma(TemplateTests):
    task, template, problems, points = "attention", "wmma", ("1,1,64,64",), 1


@pytest.mark.nvcc
class TestFlashMma(TemplateTests):
    task, template, problems, points = "attention", "flash_mma", ("1,1,96,64",), 1


@pytest.mark.nvcc
class TestFlashWgmma(TemplateTests):
    task, template, problems, points = "attention", "flash_wgmma", ("1,1,128,64",), 0


@pytest.mark.nvcc
class TestFlashWgmmaSplit(TemplateTests):
    task, template, problems, points = "attention", "flash_wgmma_split", ("1,1,128,64",), 0


@pytest.mark.nvcc
class TestRowSumWarp(TemplateTests):
    task, template, folders = "row_sum", "warp", TOYS


@pytest.mark.nvcc
class TestExtremesWarp(TemplateTests):
    task, template, folders = "extremes", "warp", TOYS


@pytest.mark.nvcc
class TestScaleGrid(TemplateTests):
    task, template, folders = "scale", "grid", TOYS


@pytest.mark.nvcc
class TestEmulator(DeviceTests):
    device = "emulator"


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
class TestCuda(DeviceTests):
    device = "cuda:0"


class TestEvo(StrategyTests):
    strategy = Evo


class TestTpe(StrategyTests):
    strategy = Tpe


class TestNsga2(StrategyTests):
    strategy = Nsga2


class TestRandom(StrategyTests):
    strategy = Random
