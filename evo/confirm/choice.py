"""Which champion serves a problem on a GPU, and why not the others.

    consider   every champion of the task: how it is launched for the problem, or why it cannot serve it
    choose     the first of them

A champion is made for one problem. It serves others of the same flags and storage type where its template
has one program for both, launched as it was kept (`Template.sibling`). Of those that serve, the nearest comes
first, then one that was timed on this GPU, then one that was timed on all timing inputs, then the faster.
A problem with a tensor of more than 2^31 elements is served by a champion of that very problem alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.confirm.champions import Champion
from evo.errors import BadTemplate, NothingFound, UnknownName
from evo.gpu import Limits
from evo.launch.dispatch import TOO_LARGE, is_large
from evo.task import load_task
from evo.template import Template, load_template
from evo.trial import PLAIN, Candidate, LaunchConfig, Problem, body_of, varies

SET = "set"
"""What the record of a kernel of a set of studies says of its problem: `regret`, `left_out_regret`, `us`."""


@dataclass(frozen=True)
class Choice:
    """A champion for a problem: how it is launched there, and why it is the one."""

    champion: Champion
    launch: LaunchConfig
    exact: bool
    why: str

    def candidate(self, problem: Problem) -> Candidate:
        """The champion's very source, as it is launched for `problem`."""
        record = self.champion.record
        return Candidate(
            problem,
            str(record["template"]),
            record["point"],
            self.champion.source,
            str(record["entry"]),
            self.launch,
        )


@dataclass(frozen=True)
class Considered:
    """A champion that was looked at for a problem. `launch` is None where it cannot serve the problem; `why`
    says why it can or cannot. `doublings`: how far its sizes are from the problem's."""

    champion: Champion
    launch: LaunchConfig | None
    doublings: float
    why: str


def choose(
    problem: Problem, limits: Limits, found: Sequence[Champion], folders: Sequence[Path] = ()
) -> Choice:
    """The champion for `problem` within `limits`: its own, else the nearest whose code serves it. Its task
    and template are looked for in `folders` first. NothingFound, with each one's reason, if there is none."""
    return first_of(problem, limits, consider(problem, limits, found, folders))


def first_of(problem: Problem, limits: Limits, considered: Sequence[Considered]) -> Choice:
    """The first that serves, of champions that were considered; NothingFound, with each one's reason, if none
    does."""
    for one in considered:
        if one.launch is not None:
            exact = one.doublings == 0
            why = one.why if exact else f"the nearest whose code serves it, {one.why}"
            return Choice(one.champion, one.launch, exact, why)
    reasons = "; ".join(f"{one.champion.name}: {one.why}" for one in considered)
    large = f": {TOO_LARGE}" if any(one.why == TOO_LARGE for one in considered) else ""
    raise NothingFound(
        f"no champion serves {problem.key} on {limits.instructions}{large}",
        reasons or "there are no champions: search, confirm, and `evo promote` the best",
    )


def consider(
    problem: Problem, limits: Limits, found: Sequence[Champion], folders: Sequence[Path] = ()
) -> list[Considered]:
    """All champions of the problem's task: those that serve it within `limits`, best first, then the others,
    nearest first."""
    looked_at = []
    for champion in found:
        if champion.problem.task != problem.task:
            continue
        launch = _launch(champion, problem, limits, folders)
        far = distance(champion.problem, problem)
        if isinstance(launch, str):
            looked_at.append(Considered(champion, None, far, launch))
        else:
            looked_at.append(Considered(champion, launch, far, _why(champion, problem)))
    return sorted(looked_at, key=lambda one: _rank(one, limits))


def _rank(one: Considered, limits: Limits) -> tuple[object, ...]:
    """Times on another GPU say less than those on this one, and so do times on plain inputs alone."""
    champion = one.champion
    if one.launch is None:
        return True, one.doublings
    elsewhere = champion.gpu != limits.gpu.name
    return False, one.doublings, elsewhere, champion.ranking == PLAIN, champion.median_us or math.inf


def distance(a: Problem, b: Problem) -> float:
    """How far two problems' sizes are apart, in doublings."""
    return sum(abs(math.log2(a.sizes[name] / b.sizes[name])) for name in a.sizes)


def _why(champion: Champion, problem: Problem) -> str:
    warm, figures = champion.warm, f"found on {champion.gpu}"
    if champion.median_us is not None:
        figures = f"CONFIRMED at {champion.median_us:.2f} µs on {champion.gpu}, {_inputs_text(warm)}"
    if warm.get("speedup"):
        figures += f", {warm['speedup']:.2f}x of {warm['versus']}"
    figures += _regret_text(champion.record.get(SET, {}))
    if champion.problem.key == problem.key:
        return f"made for this very problem; {figures}"
    far = distance(champion.problem, problem)
    made = f"made for {champion.problem.key}, {figures}"
    return f"{far:.1f} doublings away: {made}"


def _regret_text(told: Mapping[str, Any]) -> str:
    """What the portfolio's kernel loses on its problem, and what that of a portfolio would which did not know
    the problem."""
    known = {
        "its portfolio's kernel": told.get("regret"),
        "one chosen without it": told.get("left_out_regret"),
    }
    said = [f"{kernel} takes {regret:.3f}x of the best there" for kernel, regret in known.items() if regret]
    return "".join(f", {text}" for text in said)


def _inputs_text(warm: Mapping[str, Any]) -> str:
    """What the time is of, and whether it depends on the data."""
    medians = {on: float(time["median_us"]) for on, time in warm.get("times", {}).items()}
    if len(medians) < 2:
        return f"on {next(iter(medians))} inputs" if medians else "on plain inputs alone"
    of = f"{warm['ranking']} of {', '.join(medians)}"
    low, high = min(medians.values()), max(medians.values())
    return f"{of} (data-dependent {low:.2f} to {high:.2f})" if varies([low, high]) else of


def _launch(
    champion: Champion, problem: Problem, limits: Limits, folders: Sequence[Path]
) -> LaunchConfig | str:
    """How `champion` is launched for `problem`, or why it cannot serve it."""
    if champion.problem.dtype != problem.dtype or champion.problem.flags != problem.flags:
        return "other flags or another storage type"
    try:
        template = template_of(champion, limits, folders)
        buffers = load_task(problem.task, folders).buffers(problem)
    except UnknownName as error:
        return error.message
    if champion.problem.key != problem.key and is_large(buffer.shape for buffer in buffers):
        return TOO_LARGE
    return launch_by(template, champion, problem, limits)


def template_of(champion: Champion, limits: Limits, folders: Sequence[Path] = ()) -> Template:
    """The template that a champion was rendered by, as it is today. UnknownName where it is gone."""
    name = str(champion.record["template"])
    return load_template(load_task(champion.problem.task, folders), name, folders, limits.gpu)


def launch_by(template: Template, champion: Champion, problem: Problem, limits: Limits) -> LaunchConfig | str:
    """How `champion`, of this template, is launched for a problem of its flags and storage type, or why its
    code cannot serve it."""
    own, launch = champion.problem, champion.launch
    reason = not_called(launch) or template.supports(problem, limits)
    if reason is None and launch.smem_bytes > limits.smem_bytes:
        reason = f"needs {launch.smem_bytes} bytes of shared memory, {limits.smem_bytes} allowed"
    if reason is not None or own.key == problem.key:
        return reason or launch
    candidate = Candidate(
        own,
        template.name,
        champion.record["point"],
        champion.source,
        str(champion.record["entry"]),
        launch,
    )
    try:
        sibling = template.sibling(candidate, problem)
    except BadTemplate:
        sibling = None  # today's template has changed too much
    if sibling is None or body_of(sibling.source) != body_of(champion.source):
        return f"its code is made for {own.key}"
    return sibling.launch


def not_called(launch: LaunchConfig) -> str | None:
    """Why no program may call a kernel that is launched so; None where any may. A module has one constant
    memory, which calls on two streams would share."""
    if not launch.constants:
        return None
    one = launch.constants[0]
    return f"{one.buffer} lies in constant memory (__constant__ {one.variable}), which no call writes yet"
