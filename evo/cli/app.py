"""The command `evo`: every command parses what it was told, calls one function and prints the answer.

stdout is data, stderr is progress. Errors say `error: …`, then `hint: …`; the exit codes are in `EPILOG`.
What is heavy (torch, Optuna, SQLAlchemy) is imported inside the command that needs it, so that `evo --help`
is there at once. The environment variables of evo are read in this package and nowhere else.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from evo.cache import Build, watch_builds
from evo.cli import champions, checks, cluster, database, explain, importing, kernel, own, results, search
from evo.cli.ahead import first_evaluators
from evo.cli.parse import notice, stderr
from evo.cli.task_command import TaskCommand
from evo.errors import EvoError, UsageError, passwords_of, without_passwords
from evo.version import __version__

if TYPE_CHECKING:
    from evo.report.builds import BuildView

__all__ = ["main"]

EPILOG = """Exit codes: 0 done; 1 a bug in evo, with its traceback; 2 the request is wrong; 3 the machine
lacks something (compiler, GPU, permission, disk space); 4 no correct kernel; 130 interrupted. Environment:
EVO_DATABASE, EVO_CACHE and EVO_TEMPLATES stand for --database, --cache and --templates, CUDA_HOME for
--nvcc."""

GARBAGE_OBJECTS = 100_000
"""How many more objects there are when garbage is looked for: at Python's 700 that was a fifth of what the
imports of a command take."""

app = typer.Typer(
    epilog=" ".join(EPILOG.split()),
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _paragraphs(text: str) -> str:
    """A docstring as a help text: paragraphs fill whatever width there is; examples (after \\b) stay."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in parts)


_COMMANDS: dict[str, tuple[Callable[..., object], ...]] = {
    "Searching": (search.search, search.resume, search.confirm, search.space, cluster.worker),
    "What was found": (results.leaderboard, results.studies, results.show, results.bench, database.database),
    "Keeping what won": (champions.promote, champions.champion, champions.export),
    "Why the winner wins": (
        explain.insights,
        explain.ablate,
        explain.profile,
        explain.report,
    ),
    "Your own kernel": (own.new, own.try_, importing.import_),
    "One kernel": (kernel.replay, kernel.emulate),
    "Checks of evo and of this machine": (checks.gate, checks.audit, checks.doctor),
}
"""The commands of each panel of the help; each panel has a file."""
for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        _kind = TaskCommand if "flag" in inspect.signature(_function).parameters else TyperCommand
        _name = _function.__name__.rstrip("_").replace("_", "-")
        app.command(_name, cls=_kind, rich_help_panel=_panel, help=_paragraphs(_function.__doc__ or ""))(
            _function
        )


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say which evo this is.")] = False,
) -> None:
    """Search for the fastest correct CUDA kernel.

    A search fills the holes of CUDA templates, compiles each candidate, checks it against a reference in
    double precision, times it beside what it must beat, and keeps every trial in a database.

    \b
      evo search --budget 2m      attention, on the best device there is
      evo leaderboard             the best kernels so far
      evo show STUDY/NUMBER       one of them, with its source
      evo doctor                  what this machine can do
    """
    if version:
        print(f"evo {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


app.callback(help=_paragraphs(_root.__doc__ or ""))(_root)


@cache
def _command() -> Any:
    """All commands with their options, made once a process: it takes longer than a short command."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code. What is raised and is no EvoError is a bug: its traceback, and 1."""
    # NumPy, not loaded yet, has small matrices here: threads would wait for each other, many times longer on
    # a busy machine; and one thread rounds alike wherever a search is resumed
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(GARBAGE_OBJECTS)
    watch_builds(_show_build)
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = [*given, os.environ.get("EVO_DATABASE", "")]
    try:
        with first_evaluators(given) as spares:
            return int(_command()(args=given, prog_name="evo", standalone_mode=False, obj=spares) or 0)
    except typer.TyperException as error:  # what typer itself found wrong with the words
        text = error.format_message().replace("Value error, ", "").replace("Input should be", "it is not")
        hint = _hint(text, getattr(error, "ctx", None))
        return _complain(UsageError((text[:1].lower() + text[1:]).rstrip("."), hint), words)
    except EvoError as error:
        return _complain(error, words)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # `evo leaderboard | head`: the reader has gone, which is no fault
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - a bug, wherever it is
        _tell(traceback.format_exc().rstrip(), words)
        return 1


def _hint(text: str, context: typer.Context | None) -> str:
    """What to do about words that typer refuses."""
    if text.startswith("Missing option '--budget'"):
        return "how long to search: --budget 2m"
    if text.startswith("Got unexpected extra argument") and context:
        params = context.command.params
        words = {word for param in params for word in param.opts}
        named = [f"{option} NAME" for option in ("--task", "--study") if option in words]
        if named and all(param.param_type_name == "option" for param in params):
            return f"an option says which: {' or '.join(named)}"
    path = context.command_path if context else "evo"
    return f"{path} --help says what there is"


def _show_build(build: Build) -> None:
    _build_view()(build)


@cache
def _build_view() -> BuildView:
    from evo.report.builds import BuildView

    return BuildView(stderr())


def _complain(error: EvoError, words: Sequence[str]) -> int:
    _tell(f"error: {error.message}", words)
    if error.hint:
        _tell(f"hint: {error.hint}", words)
    return error.exit_code


def _tell(text: str, words: Sequence[str]) -> None:
    """Says it on stderr, without the passwords of the command's words; what follows its first line is
    indented, as it may be anything."""
    text = text if text.startswith("Traceback") else text.replace("\n", "\n  ")
    notice(without_passwords(text, frozenset().union(*map(passwords_of, words))))
