"""A command that knows its task: TASK and --templates decide which flags, sizes and storage types it offers.

The task is looked up among the arguments before they are parsed; its Python file runs, torch is not imported.
Its true or false flags become options of their own, and the help of --shape and --dtype speaks of its sizes.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from evo.api.parse import task_folders
from evo.cli.options import DEFAULT_TASK, WHAT
from evo.cli.parse import problem_names
from evo.errors import EvoError, UnknownName

if TYPE_CHECKING:
    from evo.task import Task

_PARAMETERS = "evo.parameters"
"""Key of a context: the parameters that were made for its task."""


class _PerhapsAValue(UnknownName):
    """There is no task of that name, but the word stands behind an option that the command does not have."""


class TaskCommand(TyperCommand):
    """A command with the parameters `task`, `templates` and `flag`, and perhaps `shape` and `dtype`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As any command; what the task's own options say is added to the values of --flag.

        Where the task cannot be loaded, its error comes before complaints about options that it may have, but
        not where the word stands behind a misspelt option of the command."""
        flags: list[Any] = []
        unknown: EvoError | None = None
        try:
            task = self._find_task(ctx, args)
            flags = _flag_options(task, {name for param in self.params for name in param.opts})
            ctx.meta[_PARAMETERS] = _after_flag([_spoken(param, task) for param in self.params], flags)
        except EvoError as error:
            unknown = error
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.TyperException as error:
            misspelt = isinstance(unknown, _PerhapsAValue) and getattr(error, "possibilities", None)
            if unknown is None or misspelt:
                raise
            raise unknown from None
        chosen = {param.name: ctx.params.pop(param.name) for param in flags}
        own = [f"{name}={value}" for name, value in chosen.items() if value is not None]
        ctx.params["flag"] = [*(ctx.params.get("flag") or ()), *own]
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters for the task of this context, and the help option."""
        every: list[Any] = super().get_params(ctx)
        made = ctx.meta.get(_PARAMETERS)
        return every if made is None else [*made, *every[len(self.params) :]]

    def _find_task(self, ctx: Any, args: list[str]) -> Task:
        """The task that the arguments name, or the default one. UnknownName, BadTemplate."""
        from evo.task import load_task

        options = [param for param in self.params if param.param_type_name == "option"]
        parser = TyperCommand(None, params=options).make_parser(ctx)
        parser.ignore_unknown_options = True
        said: dict[str, Any] = {}
        words: list[str] = []
        with contextlib.suppress(typer.TyperException):  # it is said when the arguments are parsed in earnest
            said, words, _ = parser.parse_args(list(args))
        named = [word for word in words if not word.startswith("-")]
        folders = next(
            (param.consume_value(ctx, said)[0] for param in options if param.name == "templates"), ()
        )
        name = named[0] if named else DEFAULT_TASK
        try:
            return load_task(name, task_folders([Path(folder) for folder in folders or ()]))
        except UnknownName as error:
            before = next((first for first, word in pairwise(words) if word == name), "")
            if not before.startswith("-"):
                raise
            hint = f"{error.hint}; if {name} is the value of {before}: there is no such option here"
            raise _PerhapsAValue(error.message, hint) from None


def _flag_options(task: Task, taken: set[str]) -> list[Any]:
    """An option for each flag of the task whose name is not `taken`: `--NAME` for one that is true or false
    (`--no-NAME` too, if it is true by default), `--NAME VALUE` for others."""
    parameters = []
    keyword = inspect.Parameter.KEYWORD_ONLY
    for name, flag in task.flags.items():
        option = f"--{name.replace('_', '-')}"
        if not name.isidentifier() or option in taken:
            continue
        kind: Any
        if set(flag.values) == {False, True}:
            both = f"{option}/--no-{option.removeprefix('--')}" if flag.default else option
            kind = Annotated[bool | None, typer.Option(both, rich_help_panel=WHAT, help=flag.meaning)]
        else:
            values = "|".join(map(str, flag.values))
            said = f"{flag.meaning.rstrip('.')} (default: {flag.default})."
            kind = Annotated[
                str | None, typer.Option(option, metavar=values, rich_help_panel=WHAT, help=said)
            ]
        parameters.append(inspect.Parameter(name, keyword, default=None, annotation=kind))

    def accept(**_: bool | str | None) -> None:
        """Only its signature counts: typer makes options of it."""

    accept.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(accept)
    return list(typer.main.get_command(app).params)


def _after_flag(params: list[Any], flags: list[Any]) -> list[Any]:
    """The parameters with the task's own options beside --flag."""
    at = next(number for number, param in enumerate(params, 1) if param.name == "flag")
    return [*params[:at], *flags, *params[at:]]


def _spoken(param: Any, task: Task) -> Any:
    """`param` with a help that speaks of this task."""
    spoken = copy.copy(param)
    if param.name in ("shape", "shapes"):
        spoken.metavar = ",".join(task.sizes)
        spoken.help = f"{param.help.rstrip('.')} (default: {problem_names(task)})."
    elif param.name == "dtype":
        spoken.metavar = "|".join(task.dtypes)
        spoken.help = f"{param.help.rstrip('.')} (default: {task.example.dtype})."
    elif param.name == "flag" and task.flags:
        spoken.help = f"Set a flag of {task.name}: {', '.join(task.flags)}. May be repeated."
    return spoken
