"""The command for other machines: worker."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from evo.cli.options import (
    WHERE,
    CacheOption,
    GpuOption,
    GpusOption,
    NvccOption,
    WorkersOption,
    nvcc_or_environment,
    open_cache,
)
from evo.cli.parse import check_address, notice
from evo.errors import MachineError


def worker(
    *,
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="As Dask writes it: tcp://host:8786.")],
    name: Annotated[str | None, typer.Option(help="Its name (default: HOST-PID).")] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="auto|cuda|emulator|none",
            rich_help_panel=WHERE,
            help="none compiles for others; auto takes a GPU if there is one.",
        ),
    ] = "auto",
    gpu: GpuOption = None,
    gpus: GpusOption = None,
    workers: WorkersOption = None,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> None:
    """Evaluate and compile for the searches at a Dask scheduler, until it is ended.

    A worker runs code that it is sent: each person that reaches the scheduler can run programs here. Searches
    use workers of their own versions only.

    \b
      evo worker --scheduler tcp://first:8786
      evo worker --scheduler tcp://first:8786 --gpus all
      evo worker --scheduler tls://first:8786 --device none
    """
    check_address(scheduler)
    try:
        from evo.cluster.site import site_here
        from evo.cluster.worker import serve
    except ModuleNotFoundError as error:
        raise MachineError(f"a worker needs {error.name}", "pip install 'evo-kernels[cluster]'") from error
    root: Path = open_cache(cache).root
    called = name or f"{socket.gethostname()}-{os.getpid()}"
    site = site_here(called, device, gpu, gpus, workers, root, nvcc_or_environment(nvcc))
    serve(scheduler, site, notice)
