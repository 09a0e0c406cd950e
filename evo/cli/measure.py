"""The commands that measure what a search found: confirm, bench."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.options import (
    DATABASE,
    CacheOption,
    CausalOption,
    DatabaseOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    KernelsOption,
    NvccOption,
    nvcc_or_environment,
    open_cache,
    open_store,
    study_names,
)
from evo.cli.parse import form_of, notice, parse_problems, put
from evo.errors import MachineError, NothingFound, UsageError

if TYPE_CHECKING:
    from evo.confirm import Step
    from evo.confirm.bench import Entrant
    from evo.trial import Problem


def confirm(
    *,
    study: Annotated[str, typer.Argument(metavar="STUDY", autocompletion=study_names, help="Its name.")],
    top: Annotated[int, typer.Option(min=1, max=50, help="How many of its best trials.")] = 5,
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Gate the best trials of a study again, thoroughly, and time them again beside every baseline.

    In a fresh process, with fresh inputs and seeds, in turns, with a warm and with a cold L2 cache. Intervals
    hold for all finalists at once, so that the best of them is not the luckiest. A search does this by
    itself at its end; a confirmation that was interrupted goes on where it stood. Ends with 4 if no trial
    is correct.

    \b
      evo confirm attention-1 --top 5
    """
    from evo.confirm import confirm as run
    from evo.confirm.worker import RefereeProcess, RefereeSpec
    from evo.device.open import is_gpu
    from evo.report import as_json
    from evo.report.confirmed import confirmation_record, confirmation_tables
    from evo.study import Setup

    with open_store(database) as store:
        found = store.study(study)
        if not is_gpu(found.device):
            hint = "search on a machine with a GPU"
            raise UsageError(f"study {study} ran on the emulator: its times are estimates", hint)
        spec = RefereeSpec.of(Setup.of(found, open_cache(cache).root, nvcc_or_environment(nvcc)))
        spec.evaluator.prepare()
        store.claim(found, found.lookahead)  # no other process searches or confirms it meanwhile
        try:
            with closing(RefereeProcess(spec)) as judges:
                result = run(found, store, judges, top=top, afresh=True, watch=_tell)
        finally:
            status = "interrupted" if found.status == "running" else found.status  # a kill left it so
            store.release(found, status, found.spent_s)
    if result is None or not result.green:
        hint = f"give it more time: evo resume {study} --budget +10m"
        raise NothingFound(f"study {study} has no timed trial that is correct", hint)
    if form_of(json) == "json":
        sys.stdout.write(as_json(confirmation_record(result)))
    else:
        put(confirmation_tables(result), "text")
    return 0


def bench(
    *,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shapes", metavar="B,H,L,D|NAME", help="A shape or a set of them; may be repeated."),
    ] = None,
    trial: Annotated[
        list[str] | None,
        typer.Option(metavar="TRIAL", help="STUDY/NUMBER; may be repeated (default: each shape's best)."),
    ] = None,
    causal: CausalOption = False,
    dtype: DtypeOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out baselines that take seconds to compile.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=10, help="Rounds of each shape.")] = 10,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw it, too.")] = None,
    kernels: KernelsOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> None:
    """Time champions, the best trials and the baselines side by side over shapes.

    For each shape the champion that serves it takes part, and its best trial in the database, or that of the
    nearest shape, rendered for this one; with --trial, those that are named instead. Each passes the thorough
    gate first, and all take turns with every baseline. Nothing is stored.

    \b
      evo bench --shapes seeds
      evo bench --shapes 1,8,512,64 --shapes 2,16,4096,128 --trial mission-1/224 --plot bench.svg
    """
    from evo.confirm.bench import bench as run
    from evo.confirm.champions import champions
    from evo.confirm.entrants import champion_for, entrant_of, nearest_trial
    from evo.confirm.worker import RefereeProcess, RefereeSpec
    from evo.device.open import choose_device, is_gpu
    from evo.report import as_json
    from evo.report.bench import absent_lines, bench_record, bench_svg, bench_tables, origin_lines
    from evo.task import load_task

    if plot is not None and not plot.parent.is_dir():  # told before minutes are spent
        raise MachineError(f"cannot write {plot}: there is no folder {plot.parent}", "make it first")
    chosen, gpu = choose_device(device, None, None)
    if not is_gpu(chosen):
        raise MachineError("nothing can be timed without an NVIDIA GPU", "run it on a machine that has one")
    problems = parse_problems(load_task("attention"), shapes or ["mission"], dtype, causal)
    built, tools = open_cache(cache).root, nvcc_or_environment(nvcc)
    kept = champions(kernels)
    with ExitStack() as stack:
        searched = bool(trial) or database != DATABASE or Path(DATABASE).exists()
        store = stack.enter_context(open_store(database)) if searched else None
        named = {name: entrant_of(store, name, gpu) for name in trial or () if store}

        def entrants(problem: Problem) -> dict[str, Entrant]:
            name, champion = champion_for(problem, gpu, kept)
            best = nearest_trial(store, problem, gpu) if store and not named else None
            return {name: champion, **(dict([best]) if best else named)}

        def judges(problem: Problem) -> RefereeProcess:
            return RefereeProcess(RefereeSpec.of_problem(problem, chosen, gpu, built, tools, not quick))

        sheets = run(problems, entrants, judges, rounds, notice)
    for line in (*origin_lines(sheets), *absent_lines(sheets)):
        notice(line)
    if plot is not None:
        plot.write_text(bench_svg(sheets), encoding="utf-8")
    if form_of(json) == "json":
        sys.stdout.write(as_json(bench_record(sheets)))
    else:
        put(bench_tables(sheets), "text")


def _tell(step: Step) -> None:
    notice(step.text)
