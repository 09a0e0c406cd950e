"""The options that several commands share, with their help and what a shell completes them to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import DATABASE, OWN_TASKS
from evo.cli.parse import notice
from evo.errors import EvoError

if TYPE_CHECKING:
    from evo.cache import Cache
    from evo.store import Store
    from evo.task import Task


DEFAULT_TASK = "attention"
"""The task of a command that is told of none."""
MOST_PROCESSES = 1024
"""At work at once; more than a machine has cores for."""
MOST = 1_000_000
"""Of whatever is counted by an option."""
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


def parse_ranking(task: Task, text: str) -> str:
    """Which of a kernel's times on the task's timing inputs counts; UnknownName where it is none of them."""
    from evo.timing import ranking_named

    return ranking_named(text, task)


# ------------------------------------------------------------------------------ what a shell completes


def study_names(incomplete: str) -> list[str]:
    """Silent where there is no database: a shell shows what a completion prints."""
    try:
        with open_store(os.environ.get("EVO_DATABASE", DATABASE)) as store:
            names = [study.name for study in store.studies()]
            return [name for name in names if name.startswith(incomplete) and name.isprintable()]
    except EvoError:
        return []


def template_names(incomplete: str) -> list[str]:
    from evo.task import list_tasks
    from evo.template import list_templates

    folders = _named_folders()
    found = {name for task in list_tasks(folders) for name in list_templates(task, folders)}
    return sorted(name for name in found if name.startswith(incomplete))


def task_names(incomplete: str) -> list[str]:
    from evo.task import list_tasks

    return [name for name in list_tasks(_named_folders()) if name.startswith(incomplete)]


def _named_folders() -> list[Path]:
    """The folders of templates that the environment names and that are there."""
    named = map(Path, filter(None, os.environ.get("EVO_TEMPLATES", "").split(os.pathsep)))
    return [folder for folder in (list(named) or [OWN_TASKS]) if folder.is_dir()]


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
    typer.Option(
        "--database",
        envvar="EVO_DATABASE",
        show_envvar=False,
        metavar="PATH|URL",
        rich_help_panel=WHERE,
        help="An SQLite file or a PostgreSQL URL.",
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        envvar="EVO_CACHE",
        show_envvar=False,
        metavar="DIR",
        rich_help_panel=WHERE,
        help="Where built things are kept (default: ~/.cache/evo).",
    ),
]
NvccOption = Annotated[
    Path | None,
    typer.Option(
        "--nvcc",
        metavar="PATH",
        rich_help_panel=WHERE,
        help="The CUDA compiler (default: CUDA_HOME, then PATH, then the installed wheels).",
    ),
]
TemplatesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--templates",
        metavar="DIR",
        envvar="EVO_TEMPLATES",
        show_envvar=False,
        rich_help_panel=WHAT,
        help="A folder of more tasks and templates: DIR/TASK/mine.cu (default: ./tasks). May be repeated.",
    ),
]
TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", autocompletion=task_names, help="What to compute.")
]
ShapeOption = Annotated[
    str | None,
    typer.Option(
        "--shape",
        metavar="SIZES",
        rich_help_panel=WHAT,
        help="The sizes, some of them by name (N=512), or a problem's name.",
    ),
]
ProblemsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes",
        metavar="SIZES|NAME|FILE",
        rich_help_panel=WHAT,
        help="Several problems at once: sizes, a named set, or a file with a line for each. May be repeated.",
    ),
]
PortfolioOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        metavar="N",
        rich_help_panel=WHAT,
        help="With --shapes: at most so many kernels for all of them (default: 8).",
    ),
]
FlagOption = Annotated[
    list[str] | None,
    typer.Option(
        "--flag",
        metavar="NAME[=VALUE]",
        rich_help_panel=WHAT,
        help="Set a flag of the problem. May be repeated.",
    ),
]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", metavar="NAME", rich_help_panel=WHAT, help="The storage type.")
]
TemplateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--template",
        metavar="NAME",
        autocompletion=template_names,
        rich_help_panel=WHAT,
        help="Only this template. May be repeated (default: every one that fits).",
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        autocompletion=gpu_names,
        rich_help_panel=WHERE,
        help="The GPU that the emulator stands for: L4, A100, 'RTX 4090', H200 … (default: L4)",
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="all|0,1",
        rich_help_panel=WHERE,
        help="Search on several GPUs at once: a study for each model, or many problems in parts.",
    ),
]
ExchangeOption = Annotated[
    list[str] | None,
    typer.Option("--exchange", metavar="STUDY", hidden=True, help="Try its best kernels as it finds them."),
]
OwnOption = Annotated[
    str | None,
    typer.Option(
        "--own", metavar="1,3", hidden=True, help="Of --shapes these alone; other searches have the rest."
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        rich_help_panel=WHERE,
        help="Search on the workers of a Dask scheduler (evo worker): tcp://host:8786.",
    ),
]
SlurmOption = Annotated[
    Path | None,
    typer.Option(
        "--slurm",
        metavar="FILE",
        rich_help_panel=WHERE,
        help="Search on jobs of Slurm; this TOML file describes them.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="sm_89|…",
        autocompletion=target_names,
        rich_help_panel=WHERE,
        help="Use only what this architecture has: its instructions and its shared memory.",
    ),
]
SmemOption = Annotated[
    str | None,
    typer.Option(
        "--smem-limit",
        metavar="48K",
        rich_help_panel=WHERE,
        help="Use no more shared memory a CTA than this (default: all that the GPU has).",
    ),
]
KernelsOption = Annotated[
    Path | None,
    typer.Option(
        "--kernels",
        metavar="DIR",
        help="Where champions are (default: ./kernels, then those that come with evo).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed", min=0, max=2**63 - 1, rich_help_panel=HOW, help="Equal seeds draw equal random numbers."
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option(
        "--budget", metavar="14h|90m|$7", rich_help_panel=HOW, help="Time to search, or money at --rate."
    ),
]
StudyNameOption = Annotated[
    str | None,
    typer.Option("--study", metavar="NAME", rich_help_panel=HOW, help="Its name (default: TASK-N)."),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.0001,
        max=1e6,
        metavar="DOLLARS",
        rich_help_panel=HOW,
        help="What an hour of this machine costs.",
    ),
]
WarmStartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--warm-start",
        metavar="STUDY|auto|none",
        autocompletion=study_names,
        rich_help_panel=HOW,
        help="Learn from another study (auto, as by default: those most like this one). May be repeated.",
    ),
]
UNTIL = typer.Option(
    "--until",
    metavar="budget|converged|N",
    rich_help_panel=HOW,
    help="When it ends: with the budget (if it converges early it starts again elsewhere), when it has "
    "converged, or with N trials.",
)
StrategyOption = Annotated[
    str,
    typer.Option(
        "--strategy", autocompletion=strategy_names, rich_help_panel=HOW, help="What chooses the next point."
    ),
]
RankOption = Annotated[
    str,
    typer.Option(
        "--rank",
        metavar="worst|mean|NAME",
        rich_help_panel=HOW,
        help="Which time of a kernel counts: the worst of all timing inputs, their mean, or that on one.",
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE[:CALLS]",
        rich_help_panel=WHAT,
        help="Also check and time kernels on your own tensors (.safetensors, .npz): all calls, or FILE:0,2.",
    ),
]
PlaceOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        rich_help_panel=WHERE,
        help="Where the file of the study's own tensors is now (default: where it was).",
    ),
]
UnprovenOption = Annotated[
    bool,
    typer.Option(
        "--accept-unproven",
        rich_help_panel=HOW,
        help="Also rank UNPROVEN kernels, which are too slow for half of the gate's cases; they are marked.",
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
        "--workers",
        min=1,
        max=MOST_PROCESSES,
        rich_help_panel=HOW,
        help="Candidates at work at once (default: one a core).",
    ),
]
