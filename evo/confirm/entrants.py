"""What takes part in `evo bench`: champions, and stored trials, for any problem that they can serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evo.confirm.bench import Entrant, rendered
from evo.confirm.champions import Champion
from evo.confirm.choice import choose, distance
from evo.errors import Infeasible, NothingFound
from evo.gpu import Gpu, Limits
from evo.store import Store
from evo.template import load_template
from evo.trial import Candidate, Problem


def entrant_of(store: Store, name: str, gpu: Gpu) -> Entrant:
    """A stored trial's point, for any problem."""
    stored = store.trial(name)
    study, candidate = store.study(stored.study), stored.candidate
    template = load_template(study.task(), candidate.template, study.template_folders, gpu)
    origin = f"trial {stored.study}/{stored.number}, found for {candidate.problem.key}"
    return rendered(template, candidate, Limits.of(gpu), origin)


def champion_for(
    problem: Problem, gpu: Gpu, found: Sequence[Champion], folders: Sequence[Path] = ()
) -> tuple[str, Entrant]:
    """The champion that serves a problem on a GPU, and why it is the one; an entrant that cannot take part
    where there is none. Its task and template are looked for in `folders` first."""
    try:
        choice = choose(problem, Limits.of(gpu), found, folders)
    except NothingFound as error:
        reason = error.message

        def refuse(_: Problem) -> Candidate:
            raise Infeasible(reason)

        return "champion", Entrant(refuse)
    origin = f"{choice.champion.name}: {choice.why}"
    return f"champion/{choice.champion.arch}", Entrant(choice.candidate, origin)


def nearest_trial(store: Store, problem: Problem, gpu: Gpu) -> tuple[str, Entrant] | None:
    """The best trial of `problem` on this GPU, CONFIRMED first; else that of the problem nearest to it (same
    flags and storage type, sizes the fewest doublings away) whose template can serve this one; None where
    there is none."""
    kin = [
        study
        for study in store.studies()
        if (study.problem.task, study.problem.dtype, study.problem.flags)
        == (problem.task, problem.dtype, problem.flags)
    ]
    for near in sorted(kin, key=lambda study: distance(problem, study.problem)):
        for template in (None, *near.templates):  # the best of all, then the best of each template
            asked = {"problem": near.problem.key, "gpu": gpu.name, "template": template}
            for row in store.leaderboard(**asked, limit=1):
                name = f"{row.study}/{row.number}"
                entrant = None if row.median_us is None else entrant_of(store, name, gpu)
                if entrant and _serves(entrant, problem):
                    return name, entrant
    return None


def _serves(entrant: Entrant, problem: Problem) -> bool:
    try:
        entrant.candidate(problem)
    except Infeasible:
        return False
    return True
