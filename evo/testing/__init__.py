"""Test suites for those who extend evo: subclass one, name your thing, and pytest does the rest.

    TaskTests       a task: problems, inputs, reference, buffers, gate problems, baselines
    TemplateTests   a template: its holes, its models, and its kernels through the gate, on the emulator
    DeviceTests     a device: what every device must load, launch, refuse and disturb
    StrategyTests   a strategy: what it may propose, and that it is a pure function of what it was told

They need pytest. docs/extending.md shows one of each.
"""

from evo.testing.device import DeviceTests
from evo.testing.strategy import StrategyTests
from evo.testing.task import TaskTests
from evo.testing.template import TemplateTests

__all__ = ["DeviceTests", "StrategyTests", "TaskTests", "TemplateTests"]
