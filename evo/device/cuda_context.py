"""torch's primary context on a GPU, in which kernels are loaded and launched."""

from __future__ import annotations

from typing import Any

from evo.device.driver import ask, driver_api, gpu_at, words_of
from evo.errors import Crashed, MachineError


class CudaContext:
    """The context on GPU number `index` of this process. After an error that kills it, it is not `usable`."""

    def __init__(self, index: int) -> None:
        self.driver = driver_api()
        self.gpu = gpu_at(index)
        import torch

        self.index = index
        self._stream_of = torch._C._cuda_getCurrentRawStream  # a Stream object takes 6 µs more
        self.torch_device = f"cuda:{index}"
        self.usable = True
        try:
            torch.cuda.set_device(index)
            torch.cuda.init()
            torch.zeros(1, device=self.torch_device)  # makes the primary context, current in this thread
        except (RuntimeError, AssertionError) as error:
            raise MachineError(
                f"torch cannot use cuda:{index}: {str(error).splitlines()[0]}",
                "install a torch built for CUDA: pip install torch",
            ) from error
        self.context = int(ask(self.driver.cuCtxGetCurrent()))
        """The driver's handle."""

    @property
    def stream(self) -> int:
        """torch's current stream on this GPU, as the driver's handle."""
        return int(self._stream_of(self.index))

    def check(self, status: Any) -> None:
        """Crashed if `status`, of a call that waits, is an error: a kernel did something forbidden."""
        if int(status) == 0:
            return
        self.usable = False
        raise Crashed(words_of(status), f"{status.name} while the kernel ran; the CUDA context is lost")
