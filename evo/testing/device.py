"""What every device must do: load, launch, refuse, disturb, finish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Device, LaunchReport, Region
from evo.device.open import choose_device, open_device
from evo.errors import Unlaunchable
from evo.trial import BufferArg, Constant, LaunchConfig, ScalarArg

if TYPE_CHECKING:
    from torch import Tensor

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, int n, float factor) {
  extern __shared__ float tile[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) y[i] = factor * tile[threadIdx.x];
}
"""
HELD = """
__constant__ float held[4];
extern "C" __global__ void show(float* y) { y[threadIdx.x] = held[threadIdx.x]; }
"""
COUNT = 1000


class DeviceTests:
    """Set `device` ("cuda:0", "emulator"); override `opened` for a device of your own. Skipped, with the
    reason, where the machine lacks it."""

    device: ClassVar[str]

    @pytest.fixture
    def compiler(self) -> Iterator[Compiler]:
        with find_compiler(None, Cache(default_folder())) as compiler:
            yield compiler

    @pytest.fixture
    def opened(self, compiler: Compiler) -> Iterator[Device]:
        name, gpu = choose_device(self.device, None, None)
        device = open_device(name, gpu, cache=default_folder(), compiler=compiler)
        yield device
        device.close()

    # ---- what the tests launch

    def launch(self, count: int = COUNT, smem_bytes: int = 512, factor: float = 2.5) -> LaunchConfig:
        args = (BufferArg("x"), BufferArg("y"), ScalarArg(count, "i32"), ScalarArg(factor, "f32"))
        return LaunchConfig((-(-count // 128), 1, 1), (128, 1, 1), smem_bytes, args)

    def buffers(self, device: Device, count: int = COUNT) -> tuple[dict[str, Tensor], dict[str, Region]]:
        import torch

        x = torch.arange(count, dtype=torch.float32, device=device.torch_device)
        tensors = {"x": x, "y": torch.zeros_like(x)}
        return tensors, {
            name: Region(name, t.data_ptr(), t.nbytes, writable=name == "y") for name, t in tensors.items()
        }

    def right(self, tensors: Mapping[str, Tensor], factor: float = 2.5) -> bool:
        import torch

        return bool(torch.equal(tensors["y"], factor * tensors["x"]))

    def loaded(self, device: Device, compiler: Compiler, launch: LaunchConfig) -> Any:
        return device.load(compiler.compile(SCALE, "scale", device.gpu.arch), launch)

    # ---- what it is like

    def test_it_says_what_it_is(self, opened: Device) -> None:
        assert opened.name
        assert opened.gpu.sms > 0
        assert opened.gpu.smem_per_cta > 0
        assert opened.usable
        assert opened.torch_device.split(":")[0] in ("cpu", "cuda")
        assert len(set(opened.schedules)) == len(opened.schedules) >= 1
        assert all(value >= 0 for value in opened.clocks.readings().values())

    # ---- work

    def test_a_launch_computes(self, opened: Device, compiler: Compiler) -> None:
        tensors, regions = self.buffers(opened)
        kernel = self.loaded(opened, compiler, self.launch())
        report = kernel.launch(self.launch(), regions)
        assert isinstance(report, LaunchReport)
        assert self.right(tensors)
        assert kernel.binary.entry == "scale"
        assert 0 < kernel.registers <= 255

    def test_every_schedule_computes_the_same(self, opened: Device, compiler: Compiler) -> None:
        kernel = self.loaded(opened, compiler, self.launch())
        for schedule in opened.schedules:
            tensors, regions = self.buffers(opened)
            assert kernel.launch(self.launch(), regions, schedule).schedule
            assert self.right(tensors), schedule

    def test_what_was_started_is_done_when_it_has_finished(self, opened: Device, compiler: Compiler) -> None:
        tensors, regions = self.buffers(opened)
        kernel = self.loaded(opened, compiler, self.launch())
        for turn in range(3):
            opened.disturb(turn)
            kernel.start(self.launch(), regions)
        opened.finish()
        assert self.right(tensors)

    def test_another_thread_may_launch(self, opened: Device, compiler: Compiler) -> None:
        tensors, regions = self.buffers(opened)
        kernel = self.loaded(opened, compiler, self.launch())

        def work() -> None:
            with opened.entered():
                kernel.start(self.launch(), regions)

        with ThreadPoolExecutor(1) as threads:
            threads.submit(work).result()
        opened.finish()
        assert self.right(tensors)

    def test_a_mark_is_reached(self, opened: Device, compiler: Compiler) -> None:
        tensors, regions = self.buffers(opened)
        self.loaded(opened, compiler, self.launch()).start(self.launch(), regions)
        opened.mark().reach()
        assert self.right(tensors)

    def test_launches_differ_by_their_arguments(self, opened: Device, compiler: Compiler) -> None:
        kernel = self.loaded(opened, compiler, self.launch())
        for factor in (1.0, -3.0):
            tensors, regions = self.buffers(opened)
            kernel.launch(self.launch(factor=factor), regions)
            assert self.right(tensors, factor)

    # ---- constant memory

    def showing(self, variable: str = "held", *more: str) -> LaunchConfig:
        """A launch that writes `x` into a variable, and shows what lies there."""
        args = tuple(BufferArg(name) for name in ("y", *more))
        return LaunchConfig((1, 1, 1), (4, 1, 1), 0, args, constants=(Constant(variable, "x"),))

    def holding(self, device: Device, *values: float) -> tuple[Tensor, dict[str, Region]]:
        """What is shown, and buffers: `values` are in `x`."""
        import torch

        x = torch.tensor(values, dtype=torch.float32, device=device.torch_device)
        y = torch.zeros(4, device=device.torch_device)
        self._kept = x, y  # as long as a launch may touch them
        regions = {"x": Region("x", x.data_ptr(), x.nbytes, writable=False)}
        return y, {**regions, "y": Region("y", y.data_ptr(), y.nbytes, writable=True)}

    def shown(self, device: Device, compiler: Compiler, source: str = HELD) -> Any:
        return device.load(compiler.compile(source, "show", device.gpu.arch), self.showing())

    def test_constants_are_written_before_each_launch(self, opened: Device, compiler: Compiler) -> None:
        """What lies behind a tensor that is shorter than the variable is zero."""
        kernel = self.shown(opened, compiler)
        for values, found in (([1, 2, 3, 4], [1, 2, 3, 4]), ([5, 6], [5, 6, 0, 0])):
            y, regions = self.holding(opened, *values)
            kernel.launch(self.showing(), regions)
            assert y.tolist() == found

    def test_modules_do_not_share_their_constants(self, opened: Device, compiler: Compiler) -> None:
        alone = replace(self.showing(), constants=())
        one, other = (self.shown(opened, compiler) for _ in "ab")
        one.launch(self.showing(), self.holding(opened, 1, 2, 3, 4)[1])
        other.write_constants(self.showing(), self.holding(opened, 5, 5, 5, 5)[1])
        for kernel, found in ((one, [1, 2, 3, 4]), (other, [5, 5, 5, 5])):
            y, regions = self.holding(opened, 9)
            kernel.launch(alone, regions)
            assert y.tolist() == found

    def test_constants_without_a_place_are_refused(self, opened: Device, compiler: Compiler) -> None:
        kernel = self.shown(opened, compiler)
        regions = self.holding(opened, 1, 2, 3, 4, 5)[1]
        with pytest.raises(Unlaunchable, match="__constant__ held has 16 bytes, x has 20") as small:
            kernel.launch(self.showing(), regions)
        assert small.value.reason == "constant too small"
        with pytest.raises(Unlaunchable, match="no variable other for x; declare __constant__ other outside"):
            kernel.launch(self.showing("other"), regions)

    def test_an_argument_may_lack_its_variable(self, opened: Device, compiler: Compiler) -> None:
        """A point may read the tensor through a pointer and leave the declaration out."""
        source = 'extern "C" __global__ void show(float* y, float* x) { y[threadIdx.x] = x[threadIdx.x]; }'
        y, regions = self.holding(opened, 1, 2, 3, 4)
        self.shown(opened, compiler, source).launch(self.showing("held", "x"), regions)
        assert y.tolist() == [1, 2, 3, 4]

    # ---- what it refuses

    def test_the_most_shared_memory_is_granted_and_more_is_not(
        self, opened: Device, compiler: Compiler
    ) -> None:
        most = self.launch(smem_bytes=opened.gpu.smem_per_cta)
        tensors, regions = self.buffers(opened)
        self.loaded(opened, compiler, most).launch(most, regions)
        assert self.right(tensors)
        with pytest.raises(Unlaunchable) as caught:
            self.loaded(opened, compiler, replace(most, smem_bytes=most.smem_bytes + 16))
        assert caught.value.reason == "shared memory"

    def test_too_many_threads_are_refused(self, opened: Device, compiler: Compiler) -> None:
        with pytest.raises(Unlaunchable):
            self.loaded(opened, compiler, replace(self.launch(), block=(2048, 1, 1)))

    def test_an_entry_that_is_not_there_is_refused(self, opened: Device, compiler: Compiler) -> None:
        binary = compiler.compile(SCALE, "scale", opened.gpu.arch)
        with pytest.raises(Unlaunchable) as caught:
            opened.load(replace(binary, entry="other"), self.launch())
        assert caught.value.reason == "no such entry"

    def test_it_works_after_a_refusal(self, opened: Device, compiler: Compiler) -> None:
        with pytest.raises(Unlaunchable):
            self.loaded(opened, compiler, replace(self.launch(), block=(2048, 1, 1)))
        self.test_a_launch_computes(opened, compiler)

    # ---- the lock

    def test_alone_and_beside_may_be_asked_for_again(self, opened: Device) -> None:
        with opened.beside(), opened.beside():
            opened.give_way(opened.finish)
        with opened.alone(), opened.alone():
            pass
