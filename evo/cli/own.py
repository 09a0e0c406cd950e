"""The commands about a kernel of your own: new, try."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import parse_own, task_folders
from evo.cli.options import (
    CacheOption,
    DeviceOption,
    DtypeOption,
    FlagOption,
    GpuOption,
    InputsOption,
    JsonOption,
    NvccOption,
    SeedOption,
    ShapeOption,
    TemplatesOption,
    nvcc_or_environment,
    open_cache,
)
from evo.cli.parse import form_of, notice, say, stdout
from evo.errors import NothingFound, UsageError

if TYPE_CHECKING:
    from evo.calls import OwnCalls
    from evo.task import Task
    from evo.trial import Problem, Trial


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The task's name: my_kernel.")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE.cu", help="Your kernel (default: an example).")
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="NAME", help="Which one, where the file has several.")
    ] = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where tasks are.")] = Path("tasks"),
) -> None:
    """Make a task and a template that run at once.

    Writes DIR/NAME with task.py (what is right), NAME.cu (the kernel) and NAME.py (what is tuned). From a
    kernel of yours it takes the arguments, and as tunables the macros that have a default (#ifndef X,
    #define X 128). Where each element depends on the same element of the inputs alone, it also writes down
    what is right. `evo` looks for tasks in ./tasks by itself.

    \b
      evo new saxpy --from saxpy.cu && evo search saxpy --budget 30s
    """
    from evo.importers import make_task

    if kernel is not None and source is None:
        raise UsageError("--kernel chooses a kernel of a file, and no file is named", "add --from FILE.cu")
    made = make_task(name, to, source, kernel)
    for file in made.files:
        say(str(file))
    for note in made.notes:
        notice(f"note: {note}")
    if made.missing:
        notice(f"next: {made.missing}")
    notice(f"then: evo try {name}, and: evo search {name} --budget 1m")


def try_(
    *,
    task: Annotated[str, typer.Argument(metavar="TASK", help="What to compute.")],
    template: Annotated[str, typer.Argument(metavar="[TEMPLATE]", help="Which template.")] = "",
    values: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Parameters that are not the default.")
    ] = None,
    shape: ShapeOption = None,
    flag: FlagOption = None,
    dtype: DtypeOption = None,
    inputs: InputsOption = None,
    templates: TemplatesOption = None,
    device: DeviceOption = "auto",
    gpu: GpuOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Try one point of a template: compile it, check it, and time it (or estimate it), without a study.

    A mistake is said with the line of the source, as in a search. Nothing is stored. Ends with 4 if the
    kernel is not correct.

    \b
      evo try attention flash_mma bm=64 k_stages=2
      evo try saxpy
    """
    from evo.report import as_json
    from evo.report.trial import trial_page, trial_record
    from evo.task import load_task

    folders = task_folders(templates)
    loaded = load_task(task, folders)
    problem, calls = parse_own(loaded, inputs, shape, dtype, flag or ())
    words = [template, *(values or [])] if template else list(values or [])
    tools = (open_cache(cache).root, nvcc_or_environment(nvcc))
    trial = _tried(loaded, problem, words, folders, (device, gpu), tools, seed, calls)
    if form_of(json) == "json":
        sys.stdout.write(as_json(trial_record(trial)))
    else:
        sys.stdout.write(trial_page(trial, stdout()))
    return 0 if trial.outcome.correct else NothingFound.exit_code


def _tried(
    task: Task,
    problem: Problem,
    words: Sequence[str],
    folders: tuple[Path, ...],
    where: tuple[str, str | None],
    tools: tuple[Path, Path | None],
    seed: int,
    calls: OwnCalls | None,
) -> Trial:
    """The trial of one point: `words` are a template's name and its parameters; `where` is the device and the
    GPU that it stands for, `tools` the cache and nvcc."""
    from evo.device.open import choose_device
    from evo.evaluate import EvaluatorSpec
    from evo.gpu import Limits
    from evo.study import templates_of

    chosen, gpu = choose_device(*where, None)
    limits = Limits.of(gpu)
    named = [word for word in words if "=" not in word]
    keys = [word.partition("=")[0] for word in words if "=" in word]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UsageError(f"parameter {twice} is given twice", f"evo try takes one value: {twice}=VALUE")
    if len(named) > 1:
        raise UsageError(f"two templates: {', '.join(named)}", "evo try TASK TEMPLATE name=value …")
    found = templates_of(task, named, folders, gpu)
    template = next((t for t in found if t.supports(problem, limits) is None), found[0])
    given = dict(word.split("=", 1) for word in words if "=" in word)
    point = template.space.parse({**template.space.default_for(problem, limits), **given})
    if (why := template.space.why_not(point, limits, problem)) is not None:
        raise UsageError(f"this point is not feasible: {why}", "evo space says what each rule refuses")
    spec = EvaluatorSpec(task.name, chosen, gpu, limits, tools[0], seed, folders, tools[1])
    spec = replace(spec, calls=calls, of_calls=problem)
    spec.prepare()
    with closing(spec.build()) as evaluator:
        return evaluator.evaluate(template.candidate(point, problem))
