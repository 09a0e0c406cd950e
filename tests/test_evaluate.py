"""One candidate through the real pipeline, on the emulator: every way that a journey can end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evo.cache import default_folder
from evo.compile import toolkits
from evo.evaluate import Evaluator, EvaluatorSpec, trial_seed, versions_of
from evo.evaluate.pool import Pool
from evo.gate import Green, check
from evo.gate.run import Between
from evo.gpu import KNOWN_GPUS, Limits
from evo.task import load_task
from evo.template import load_template
from evo.trial import Candidate, Outcome, Problem, Trial, Value, body_of, digest_of

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not toolkits(), reason="there is no CUDA compiler here"),
]

FAULTS = {
    "none": "",
    "syntax": "this is no CUDA;",
    "assert": 'static_assert(kRows == 0, "smem model and SharedStorage disagree");',
    "static": "__shared__ float huge[20000]; huge[threadIdx.x] = row; __syncthreads(); o[0] = huge[row];",
    "wrong": "narrow(1.0f, o[head + row * kDim]);",
    "nan": "narrow(__int_as_float(0x7fc00000), o[head + row * kDim]);",
    "outside": "if (row + 1 == length && blockIdx.y + 1 == gridDim.y) narrow(1, o[head + length * kDim]);",
    "hang": 'while (length > 0) asm volatile("");',
    "race": "smem.query[0][1] = float(row); narrow(smem.query[0][1], o[head + row * kDim]);",
}
"""Lines at the end of an honest kernel, by name."""
EXPECTED = {
    "none": (Outcome.GREEN, ""),
    "syntax": (Outcome.UNCOMPILABLE, "compiler error:"),
    "assert": (Outcome.UNCOMPILABLE, "static_assert: smem model and SharedStorage disagree"),
    "static": (Outcome.UNCOMPILABLE, "static shared memory limit"),
    "wrong": (Outcome.RED, "error"),
    "nan": (Outcome.RED, "NaN in the output"),
    "outside": (Outcome.RED, "out of bounds"),
    "race": (Outcome.RED, "race"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A template folder with the naive kernel and a parameter that plants a fault into it."""
    honest = Path(__file__).parent / "templates" / "attention"
    folder = tmp_path_factory.mktemp("templates")
    (folder / "attention").mkdir()
    python = (honest / "naive.py").read_text()
    planted = f"Parameter('fault', {tuple(FAULTS)!r}, 'none', meaning='planted'),\n        Parameter(\"dead\""
    (folder / "attention" / "planted.py").write_text(python.replace('Parameter("dead"', planted))
    source = (honest / "naive.cu.jinja").read_text()
    end = source.rindex("}")
    lines = "".join(f'//% if fault == "{name}"\n  {line}\n//% endif\n' for name, line in FAULTS.items())
    (folder / "attention" / "planted.cu.jinja").write_text(source[:end] + lines + source[end:])
    return folder


@pytest.fixture(scope="module")
def spec(folder: Path) -> EvaluatorSpec:
    gpu = KNOWN_GPUS["L4"]
    cache = default_folder()  # the emulator is built there, once
    return EvaluatorSpec("attention", "emulator", gpu, Limits.of(gpu), cache, seed=3, folders=(folder,))


@pytest.fixture(scope="module")
def evaluator(spec: EvaluatorSpec) -> Iterator[Evaluator]:
    spec.prepare()
    evaluator = pickle.loads(pickle.dumps(spec)).build()
    yield evaluator
    evaluator.close()


def candidate_of(spec: EvaluatorSpec, **point: Value) -> Candidate:
    template = load_template(load_task(spec.task), "planted", spec.folders)
    problem = Problem("attention", {"B": 1, "H": 2, "L": 40, "D": 32}, "fp16", {"causal": False})
    return template.candidate({**template.space.default, **point}, problem)


def test_a_gate_gives_way_between_its_cases(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    candidate, met = candidate_of(spec), list[int]()
    binary = evaluator.compiler.compile(candidate.source, candidate.entry, spec.arch)
    kernel = evaluator.device.load(binary, candidate.launch)

    def between(finish: Callable[[], None]) -> None:
        finish()
        met.append(len(met))

    def check_it(how: Between) -> Green:
        kernel_for, task = evaluator._kernel_for(candidate, kernel), evaluator.task
        return check(kernel_for, evaluator.device, task, candidate.problem, (16,), seed=1, between=how)

    ours, alone = check_it(between), check_it(lambda _: None)
    assert len(met) > 10
    assert ours.errors == alone.errors
    assert ours.launches == alone.launches


@pytest.mark.parametrize("fault", EXPECTED)
def test_every_fault_ends_as_what_it_is(evaluator: Evaluator, spec: EvaluatorSpec, fault: str) -> None:
    stages: list[str] = []
    trial = evaluator.evaluate(candidate_of(spec, fault=fault), stages.append)
    outcome, reason = EXPECTED[fault]
    assert trial.outcome == outcome, trial
    assert reason in trial.reason
    assert list(trial.seconds) == stages
    assert trial.timing is None
    assert trial.device == "emulator (L4)"
    assert {"evo", "torch", "python"} <= set(trial.versions)
    assert trial.compiler.startswith(("nvrtc 1", "nvcc 1"))
    if outcome == Outcome.GREEN:
        assert trial.estimate_us is not None
        assert trial.estimate_us > 0
        assert trial.estimate_gpu == "L4"
        assert trial.score_us == trial.estimate_us
        assert trial.errors
        assert all(case.row_error <= case.limit for case in trial.errors)
        assert trial.counters["instructions"] > 0
    else:
        assert trial.score_us is None
        assert trial.estimate_us is None
        assert trial.detail
    compiled = outcome != Outcome.UNCOMPILABLE
    assert (trial.resources is not None) == compiled
    assert bool(trial.machine_code) == compiled
    assert stages == (["compile"] if not compiled else ["compile", "load", "gate"])[: len(stages)] or (
        stages == ["compile", "load", "gate", "timing"]
    )


def test_what_compares_gpus_is_checked_once(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    right, wrong = candidate_of(spec), candidate_of(spec, fault="wrong")
    estimate_us = evaluator.evaluate(right).estimate_us
    again = evaluator.evaluate(right, earlier=1, compares=True)
    assert "gate" not in again.seconds
    assert (again.outcome, again.estimate_us) == (Outcome.GREEN, estimate_us)
    assert "gate" in evaluator.evaluate(right, earlier=1).seconds, "one of the best is checked each time"
    for _ in range(2):
        assert evaluator.evaluate(wrong, earlier=1, compares=True).outcome == Outcome.RED
    assert "gate" in evaluator.evaluate(right, earlier=2, compares=True).seconds, "another was in between"


def test_a_launch_that_no_gpu_grants(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    greedy = candidate_of(spec)
    greedy = replace(greedy, launch=replace(greedy.launch, smem_bytes=100 * 1024))
    trial = evaluator.evaluate(greedy)
    assert (trial.outcome, trial.reason) == (Outcome.UNLAUNCHABLE, "shared memory")
    assert trial.resources is not None


def test_the_same_candidate_gets_the_same_trial(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    one, two = (replace(evaluator.evaluate(candidate_of(spec)), seconds={}) for _ in range(2))
    assert one == two


def test_a_dead_parameter_leaves_the_machine_code_alone(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    codes = [evaluator.evaluate(candidate_of(spec, dead=dead)).machine_code for dead in (0, 1)]
    assert codes[0] == codes[1]
    assert evaluator.evaluate(candidate_of(spec, unroll=4)).machine_code != codes[0]


def test_seeds_follow_from_study_and_candidate(spec: EvaluatorSpec) -> None:
    one, other = candidate_of(spec), candidate_of(spec, unroll=4)
    assert trial_seed(3, one) == trial_seed(3, candidate_of(spec))
    assert len({trial_seed(3, one), trial_seed(3, other), trial_seed(4, one)}) == 3
    assert trial_seed(3, one, 0) == trial_seed(3, one) == int(digest_of(3, one.digest)[:8], 16)
    assert len({trial_seed(3, one, earlier) for earlier in range(5)}) == 5


def test_another_visit_meets_other_inputs(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    one = candidate_of(spec)
    first, same, other = (evaluator.evaluate(one, earlier=earlier) for earlier in (0, 0, 1))
    assert first.errors == same.errors
    assert {e.seed for e in first.errors} != {e.seed for e in other.errors}


def test_a_bug_is_no_trial(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    broken = candidate_of(spec)
    broken = replace(broken, launch=None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        evaluator.evaluate(broken)


def test_siblings_share_code_that_is_the_same(spec: EvaluatorSpec) -> None:
    """The naive kernel takes its length at run time: one program serves every problem of the gate."""
    program = spec.program()
    own = candidate_of(spec)
    assert program.sources(own) == [own]
    sibling = program.sibling(own, own.problem.replace(L=7))
    assert sibling.source != own.source  # another provenance
    assert body_of(sibling.source) == body_of(own.source)


def aged(candidate: Candidate, visible: str) -> Candidate:
    """The candidate as an older state of its template might have rendered it."""
    line = "const int visible = kCausal ? row + 1 : length;"
    assert line in candidate.source
    return replace(candidate, source=candidate.source.replace(line, f"const int visible = {visible};"))


def test_what_an_older_template_rendered_is_gated_itself(evaluator: Evaluator, spec: EvaluatorSpec) -> None:
    """Not the code that its template has today for the gate's other problems."""
    program, own = spec.program(), candidate_of(spec)
    old = aged(own, "length == 40 ? 40 : length & ~7")
    sibling = program.sibling(old, own.problem.replace(L=7))
    assert body_of(sibling.source) == body_of(old.source) != body_of(own.source)
    assert program.sources(old) == [old]
    trial = evaluator.evaluate(old)
    assert trial.outcome == Outcome.RED, trial
    assert evaluator.evaluate(aged(own, "(length)")).outcome == Outcome.GREEN
    relaunched = replace(old, launch=replace(old.launch, args=old.launch.args[:-1]))
    sibling = program.sibling(relaunched, own.problem.replace(L=7))
    assert body_of(sibling.source) == body_of(own.source)  # it is called otherwise: nobody knows how


def binaries(cache: Path) -> list[Path]:
    """The compiled kernels of a cache, without what it knows of the compiler."""
    return [entry for entry in cache.glob("??/*") if b"\nnvrtc " not in entry.read_bytes()]


def test_a_program_is_compiled_once_for_all_problems_that_it_serves(
    spec: EvaluatorSpec, folder: Path, tmp_path: Path
) -> None:
    """Two programs, one for whole eights and one for ragged lengths, serve the dozens of a gate."""
    (tmp_path / "attention").mkdir()
    source = (folder / "attention" / "planted.cu.jinja").read_text()
    python = (folder / "attention" / "planted.py").read_text()
    holes = '"dim": problem["D"],'
    (tmp_path / "attention" / "planted.cu.jinja").write_text(f"{source}// whole: {{{{ whole }}}}\n")
    (tmp_path / "attention" / "planted.py").write_text(
        python.replace(holes, f'{holes} "whole": problem["L"] % 8 == 0,')
    )
    spec = replace(spec, folders=(tmp_path,), cache=tmp_path / "cache")
    evaluator = replace(spec, cache=default_folder()).build()
    evaluator.compiler.close()
    evaluator.compiler = spec.compiler()
    try:
        trial = evaluator.evaluate(candidate_of(spec))
    finally:
        evaluator.close()
    assert trial.outcome == Outcome.GREEN, trial
    assert len({error.problem for error in trial.errors}) > 10
    assert len(binaries(tmp_path / "cache")) == 2


def test_precompiling_warms_the_cache_and_ends_what_does_not_compile(
    spec: EvaluatorSpec, tmp_path: Path
) -> None:

    precompiler = replace(spec, cache=tmp_path, device="cuda:0").precompiler(1)
    assert precompiler
    try:
        assert precompiler(candidate_of(spec)) is None
        assert len(binaries(tmp_path)) == 1
        failed = precompiler(candidate_of(spec, fault="assert"))
        assert failed is not None
        assert failed.outcome == Outcome.UNCOMPILABLE
        assert failed.reason.startswith("static_assert")
    finally:
        precompiler.close()


@pytest.mark.slow  # every search by the command line has one
def test_a_pool_of_emulators(spec: EvaluatorSpec) -> None:
    """Green ones, wrong ones and one that never ends, over two processes."""
    faults = ["none", "wrong", "hang", "syntax", "none"]
    finished: dict[int, Trial] = {}
    with Pool(spec, workers=2, deadline_s=10.0) as pool:
        for number, fault in enumerate(faults):
            pool.submit(number, candidate_of(spec, fault=fault, dead=number % 3))
        while len(finished) < len(faults):
            finished.update(pool.wait(5.0))
    outcomes = [finished[number].outcome for number in range(len(faults))]
    assert outcomes == ["GREEN", "RED", "HUNG", "UNCOMPILABLE", "GREEN"]
    assert finished[2].reason in ("deadline", "runaway loop")


def test_versions_of_what_is_not_installed_are_left_out(evaluator: Evaluator) -> None:
    found = versions_of(evaluator.device, ("optuna", "no-such-package"))
    assert {"evo", "python", "torch", "optuna"} <= set(found)
    assert "no-such-package" not in found
