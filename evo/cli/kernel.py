"""The commands about one kernel: replay, emulate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.api.parse import DATABASE, calls_of, located
from evo.cli.options import (
    MOST_PROCESSES,
    CacheOption,
    DatabaseOption,
    GpuOption,
    InputsOption,
    JsonOption,
    NvccOption,
    SeedOption,
    nvcc_or_environment,
    open_cache,
    open_store,
)
from evo.cli.parse import form_of, say, stdout
from evo.errors import NothingFound, UsageError

if TYPE_CHECKING:
    from evo.cache import Cache
    from evo.compile import Compiler
    from evo.explain.emulation import Emulation
    from evo.task import Task
    from evo.trial import Candidate


LaunchOption = Annotated[
    str, typer.Option(metavar="grid=8x8,block=128,smem=48K", help="Launch configuration of a file.")
]
ArgumentsOption = Annotated[
    list[str] | None, typer.Option(metavar="ARG", help="An argument of a file's kernel; repeat in its order.")
]
ScheduleOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only this schedule. May be repeated.")
]


def emulate(
    *,
    what: Annotated[str, typer.Argument(metavar="FILE|TRIAL", help="A .cu or .ptx file, or STUDY/NUMBER.")],
    launch: LaunchOption = "",
    arg: ArgumentsOption = None,
    entry: Annotated[str | None, typer.Option(metavar="NAME", help="Which kernel of the file.")] = None,
    schedule: ScheduleOption = None,
    gpu: GpuOption = None,
    seed: SeedOption = 0,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_PROCESSES, help="Threads that run the CTAs.")] = 1,
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Run a kernel on the CPU and look for races, deadlocks and accesses that no GPU would report.

    The compiled PTX is executed under several legal orders of events. Errors name the line of the source,
    the thread and the buffer; counters and bank conflicts follow. Ends with 4 if anything is wrong.

    \b
      evo emulate axpy.cu --launch grid=4,block=256 --arg f32:2 \\
          --arg x=in:f32:1024 --arg y=inout:f32:1024
      evo emulate attention-1/12 --gpu H200

    \b
    An argument is a number, i32:512 or f32:0.18 (i8 u8 i16 u16 i32 u32 i64 u64
    f16 bf16 f32 f64 bool), or a buffer,
    in:f16:512x64, out:..., inout:..., with a content after another colon if it
    matters: normal uniform ones zeros arange poison, or a number.
    A TMA tensor map over a buffer: map:in:f16:512x64:64x64:128 (box, swizzle).
    """
    from evo.device.emulator import EmulatorDevice
    from evo.device.open import DEFAULT_GPU, gpu_named
    from evo.explain.emulation import emulate_candidate, emulate_file

    path = Path(what)
    of_file = path.suffix in (".cu", ".ptx")
    if of_file and not path.is_file():
        raise UsageError(f"there is no file {path}", "give a .cu or .ptx file, or a trial: STUDY/NUMBER")
    if of_file and not launch:
        raise UsageError(f"the launch of {what} is missing", "--launch grid=8x8,block=128,smem=48K")
    if not of_file and path.suffix and "/" not in what.removeprefix("./"):
        raise UsageError(f"{what} is neither a .cu nor a .ptx file", "a trial is STUDY/NUMBER")
    if not of_file and (launch or arg or entry):
        raise UsageError("a trial has its own launch and arguments", "name a .cu file, or leave them out")
    stored = None if of_file else _stored(what, database)
    stands_for, built = gpu_named(gpu or DEFAULT_GPU), open_cache(cache)
    device = EmulatorDevice(stands_for, jobs, cache=built.root)
    with _compiler_of(path, nvcc, built) as compiler:
        if stored is None:
            result = emulate_file(
                path, device, compiler, launch, arg or [], entry=entry, schedules=schedule or [], seed=seed
            )
        else:
            assert compiler is not None
            result = emulate_candidate(*stored, device, compiler, schedule or [], seed=seed)
    _tell(result, json)
    return 0 if result.green else NothingFound.exit_code


@contextmanager
def _compiler_of(path: Path, nvcc: Path | None, cache: Cache) -> Iterator[Compiler | None]:
    """What compiles that file or trial; None for PTX."""
    from evo.compile import find_compiler

    if path.suffix == ".ptx":
        yield None
        return
    with closing(find_compiler(nvcc_or_environment(nvcc), cache)) as compiler:
        yield compiler


def _tell(result: Emulation, json: bool) -> None:
    from evo.report import as_json
    from evo.report.emulation import emulation_lines, emulation_record

    if form_of(json) == "json":
        sys.stdout.write(as_json(emulation_record(result)))
    else:
        for line in emulation_lines(result, color=stdout().color_system is not None):
            say(line)


def _stored(trial: str, database: str) -> tuple[Candidate, Task]:
    """The candidate of a stored trial, and its task."""
    with open_store(database) as store:
        stored = store.trial(trial)
        task = store.study(stored.study).task()
    return stored.candidate, task


def replay(
    *,
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="STUDY/NUMBER, or an id.")],
    inputs: InputsOption = None,
    json: JsonOption = False,
    database: DatabaseOption = DATABASE,
    cache: CacheOption = None,
    nvcc: NvccOption = None,
) -> int:
    """Do one trial again: render it, compare the source byte for byte, compile it, gate it and time it.

    Whether the template still renders the same source is told; what runs is the stored source. Nothing is
    written to the database. It is tried on --inputs, too, else on the study's own tensors if it has some.
    Ends with 4 if the kernel is not correct now.

    \b
      evo replay attention-1/12
      evo replay attention-1/12 --inputs calls.safetensors
    """
    from evo.evaluate import EvaluatorSpec
    from evo.explain.replay import replay as again
    from evo.report import as_json
    from evo.report.trial import replay_page, replay_record
    from evo.study import Setup

    with open_store(database) as store:
        stored = store.trial(trial)
        study = store.study(stored.study)
    if inputs is None:
        study = located(study, None)
    else:
        study = replace(study, calls=calls_of(stored.candidate.problem, study.task(), inputs))
    spec = EvaluatorSpec.of(Setup.of(study, open_cache(cache).root, nvcc_or_environment(nvcc)))
    spec.prepare()
    result = again(stored, spec)
    if form_of(json) == "json":
        sys.stdout.write(as_json(replay_record(stored, result)))
    else:
        sys.stdout.write(replay_page(stored, result, stdout()))
    return 0 if result.trial.outcome.correct else NothingFound.exit_code
