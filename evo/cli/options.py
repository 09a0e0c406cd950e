"""The options that several commands share, with their help and what a shell completes them to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.parse import notice
from evo.errors import EvoError

if TYPE_CHECKING:
    from evo.cache import Cache
    from evo.store import Store


DATABASE = "runs/evo.db"
WHERE, WHAT, HOW = "Where it runs", "What is searched", "How it is searched"


def open_store(database: str, create: bool = False) -> Store:
    from evo.store import Store

    return Store(database, create=create, notice=notice)


def open_cache(folder: Path | None) -> Cache:
    from evo.cache import Cache, default_folder

    return Cache(folder or default_folder())


def nvcc_or_environment(nvcc: Path | None) -> Path | None:
    """CUDA_HOME counts where it has a compiler: on some machines it names a runtime without one."""
    home = os.environ.get("CUDA_HOME")
    if nvcc is None and home and (Path(home) / "bin" / "nvcc").is_file():
        return Path(home)
    return nvcc


# ------------------------------------------------------------------------------ what a shell completes


def study_names(incomplete: str) -> list[str]:
    """Silent where there is no database: a shell shows what a completion prints."""
    try:
        with open_store(os.environ.get("EVO_DATABASE", DATABASE)) as store:
            return [study.name for study in store.studies() if study.name.startswith(incomplete)]
    except EvoError:
        return []


def template_names(incomplete: str) -> list[str]:
    from evo.task import list_tasks
    from evo.template import list_templates

    return sorted({n for task in list_tasks() for n in list_templates(task) if n.startswith(incomplete)})


def task_names(incomplete: str) -> list[str]:
    from evo.task import list_tasks

    return [name for name in list_tasks() if name.startswith(incomplete)]


def gpu_names(incomplete: str) -> list[str]:
    from evo.gpu import KNOWN_GPUS

    return [name for name in KNOWN_GPUS if name.lower().startswith(incomplete.lower())]


def target_names(incomplete: str) -> list[str]:
    from evo.gpu import TARGETS

    return [name for name in TARGETS if name.startswith(incomplete)]


def strategy_names(incomplete: str) -> list[str]:
    from evo.strategy import STRATEGIES

    return [name for name in STRATEGIES if name.startswith(incomplete)]


# ------------------------------------------------------------------------------------------- the options

DatabaseOption = Annotated[
    str,
    typer.Option("--database", envvar="EVO_DATABASE", show_envvar=False, metavar="PATH|URL",
                 rich_help_panel=WHERE, help="An SQLite file or a PostgreSQL URL."),
]  # fmt: skip
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", envvar="EVO_CACHE", show_envvar=False, metavar="DIR", rich_help_panel=WHERE,
                 help="Where built things are kept (default: ~/.cache/evo)."),
]  # fmt: skip
NvccOption = Annotated[
    Path | None,
    typer.Option("--nvcc", metavar="PATH", rich_help_panel=WHERE,
                 help="The CUDA compiler (default: CUDA_HOME, then PATH, then the installed wheels)."),
]  # fmt: skip
TemplatesOption = Annotated[
    list[Path] | None,
    typer.Option("--templates", metavar="DIR", rich_help_panel=WHAT,
                 help="A folder of more templates: DIR/attention/mine.cu.jinja. May be repeated."),
]  # fmt: skip
TaskArgument = Annotated[
    str, typer.Argument(metavar="[TASK]", autocompletion=task_names, help="What to compute.")
]
ShapeOption = Annotated[
    str | None,
    typer.Option("--shape", metavar="B,H,L,D", rich_help_panel=WHAT,
                 help="The sizes, or a problem's name (default: mission, which is 1,8,512,64)."),
]  # fmt: skip
CausalOption = Annotated[
    bool, typer.Option("--causal", rich_help_panel=WHAT, help="A query sees no later keys.")
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="fp16|bf16", rich_help_panel=WHAT, help="The storage type (default: fp16)."
    ),
]
TemplateOption = Annotated[
    list[str] | None,
    typer.Option("--template", metavar="NAME", autocompletion=template_names, rich_help_panel=WHAT,
                 help="Only this template. May be repeated (default: every one that fits)."),
]  # fmt: skip
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", autocompletion=gpu_names, rich_help_panel=WHERE,
                 help="The GPU that the emulator stands for: L4, A100, 'RTX 4090', H200 … (default: L4)"),
]  # fmt: skip
TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="sm_89|…", autocompletion=target_names, rich_help_panel=WHERE,
                 help="Use only what this architecture has: its instructions and its shared memory."),
]  # fmt: skip
SmemOption = Annotated[
    str | None,
    typer.Option("--smem-limit", metavar="48K", rich_help_panel=WHERE,
                 help="Use no more shared memory a CTA than this (default: all that the GPU has)."),
]  # fmt: skip
KernelsOption = Annotated[
    Path | None, typer.Option("--kernels", metavar="DIR", help="Where champions are (default: kernels/).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, rich_help_panel=HOW, help="Equal seeds propose equal points.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.0001,
        metavar="DOLLARS",
        rich_help_panel=HOW,
        help="What an hour of this machine costs.",
    ),
]
WarmStartOption = Annotated[
    list[str] | None,
    typer.Option("--warm-start", metavar="STUDY|auto", autocompletion=study_names, rich_help_panel=HOW,
                 help="Learn from another study (auto: those most like this one). May be repeated."),
]  # fmt: skip
StrategyOption = Annotated[
    str,
    typer.Option(
        "--strategy", autocompletion=strategy_names, rich_help_panel=HOW, help="What chooses the next point."
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cuda:0|emulator",
        rich_help_panel=WHERE,
        help="auto takes a GPU if there is one.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, rich_help_panel=HOW, help="Candidates at work at once (default: one a core)."
    ),
]
