"""The Hopper attention templates: points compile without spoiling their wgmmas, every parameter changes the
code, the same code serves every length, and results are right on the emulator in every order of events."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler
from evo.device import Region
from evo.device.emulator import EmulatorDevice, load_interpreter
from evo.errors import CandidateError, MachineError
from evo.gpu import Limits, target
from evo.task import Tensors, load_task
from evo.template import Template, load_template
from evo.trial import Candidate, Point, Problem, body_of

TASK = load_task("attention")
TEMPLATES = {name: load_template(TASK, name) for name in ("flash_wgmma", "flash_wgmma_split")}
LIMITS = Limits.of(target("sm_90a"))
HONEST = 1.5
"""How much worse than an honest kernel's worst row (P and O rounded to 16 bits) a row may be."""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as error:
        pytest.skip(str(error))
    with found:
        yield found


@dataclass(frozen=True)
class Bench:
    """Where kernels are built and run."""

    device: EmulatorDevice
    compiler: Compiler

    def launched(
        self,
        candidate: Candidate,
        family: str,
        schedule: str = "default",
        seed: int = 0,
        change: Callable[[Tensors], dict[str, torch.Tensor]] = dict,
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Inputs, as `change` makes them, and output of one launch, on buffers of exactly the problem's
        size."""
        problem = candidate.problem
        # without the head, which names the problem: one binary serves every length
        binary = self.compiler.compile(body_of(candidate.source), candidate.entry, "sm_90a")
        inputs = change(TASK.inputs(problem, family, seed, "cpu"))
        output = torch.full_like(inputs["q"], float("nan"))
        regions = {
            name: Region(name, t.data_ptr(), t.nbytes, writable=name == "o", initialised=name != "o")
            for name, t in {**inputs, "o": output}.items()
        }
        try:
            kernel = self.device.load(binary, candidate.launch)
            kernel.launch(candidate.launch, regions, schedule)
        except CandidateError as refused:
            where = f"{problem.key} {family} {schedule} {dict(candidate.point)}"
            pytest.fail(f"{where}: {refused} {refused.where}")
        return inputs, output

    def excess(self, candidate: Candidate, family: str, schedule: str = "default", seed: int = 0) -> float:
        """Worst-row relative error of one launch, over what an honest kernel's worst row has."""
        problem = candidate.problem
        inputs, output = self.launched(candidate, family, schedule, seed)
        expected = TASK.reference(problem, inputs)["o"]

        def worst(found: torch.Tensor) -> float:
            rows = (found.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
            return float(rows.nan_to_num(float("inf")).max())

        rounding = {"fp16": 2.0**-12, "bf16": 2.0**-9}[problem.dtype]  # of a row that is exact but for O
        return worst(output) / max(rounding, worst(TASK.honest(problem, inputs)["o"]))


@pytest.fixture(scope="module")
def bench(compiler: Compiler) -> Bench:
    try:
        load_interpreter()
    except MachineError as error:
        pytest.skip(str(error))
    return Bench(EmulatorDevice(target("sm_90a")), compiler)


def problems(length: int = 512) -> list[Problem]:
    kinds = itertools.product((64, 128), ("fp16", "bf16"), (False, True))
    return [TASK.problem(f"1,2,{length},{d}", dtype, causal=causal) for d, dtype, causal in kinds]


def sampled(template: Template, problem: Problem, count: int, seed: int) -> list[Point]:
    """`count` feasible points, each the one of 20 draws that adds most pairs of values not yet seen."""
    feasible, rng = template.space.feasible(LIMITS, problem), np.random.default_rng(seed)
    seen: set[object] = set()
    chosen: list[Point] = []
    for _ in range(count):
        draws = [feasible.sample(rng) for _ in range(20)]
        best = max(draws, key=lambda p: len(set(itertools.combinations(p.items(), 2)) - seen))
        seen |= set(itertools.combinations(best.items(), 2))
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("name", TEMPLATES)
def test_defaults_are_feasible(name: str) -> None:
    template = TEMPLATES[name]
    for problem in (*problems(), *problems(256)):
        assert template.space.why_not(template.space.default, LIMITS, problem) is None, problem.key


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_value_is_feasible_somewhere(name: str) -> None:
    template = TEMPLATES[name]
    lengths = (256, 512, 640, 2048)
    found = [template.space.feasible(LIMITS, TASK.problem(f"4,16,{n},64", causal=True)) for n in lengths]
    assert all(f.exact for f in found), "no longer enumerated whole"
    for i, parameter in enumerate(template.space.parameters):
        taken = {parameter.values[j] for f in found for j in np.unique(f.indices[:, i])}
        assert taken == set(parameter.values), parameter.name


@pytest.mark.parametrize("name", TEMPLATES)
def test_other_instruction_sets_and_head_dimensions_are_refused(name: str) -> None:
    template = TEMPLATES[name]
    for arch in ("sm_89", "sm_90", "sm_120"):
        why = template.supports(TASK.problem("1,8,512,64"), Limits.of(target(arch)))
        assert "sm_90a" in (why or ""), arch
    for d in (32, 80, 96):
        why = template.supports(TASK.problem(f"1,8,512,{d}"), LIMITS)
        assert str(d) in (why or "")


@pytest.mark.parametrize("name", TEMPLATES)
def test_rows_of_256_columns_have_points_of_their_own(name: str) -> None:
    """The defaults' tiles are too large for them."""
    template, problem = TEMPLATES[name], TASK.problem("1,8,512,256")
    assert template.space.feasible(LIMITS, problem).count > 20


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_gate_sees_the_code_that_is_timed(name: str) -> None:
    """Boundary problems around a point's tiles run the very same code as the study's own problem."""
    template, problem = TEMPLATES[name], TASK.problem("1,8,512,64")
    for point in [template.space.default, *sampled(template, problem, 10, 0)]:
        own = body_of(template.candidate(point, problem).source)
        for small in TASK.gate_problems(problem, template.tiles(point, problem)):
            assert body_of(template.candidate(point, small).source) == own, (small.key, dict(point))


@pytest.mark.nvcc
@pytest.mark.parametrize("name", TEMPLATES)
def test_sampled_points_compile(name: str, compiler: Compiler) -> None:
    check_compiled(TEMPLATES[name], compiler, problems()[::3], 1)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_many_points_compile(name: str, compiler: Compiler) -> None:
    check_compiled(TEMPLATES[name], compiler, problems(), 12)


def check_compiled(template: Template, compiler: Compiler, asked: list[Problem], each: int) -> None:
    """Every point compiles (so its shared-memory model is exact); at most one in ten, too tight in registers,
    has its wgmmas serialised, and none for any other reason."""
    serialised = total = 0
    for seed, problem in enumerate(asked):
        for point in sampled(template, problem, each, seed):
            candidate = template.candidate(point, problem)
            resources = compiler.compile(candidate.source, candidate.entry, "sm_90a").resources
            where = f"{problem.key} {dict(point)} {resources.warnings}"
            assert all("insufficient register" in warning for warning in resources.warnings), where
            assert resources.static_smem_bytes == 0, where
            serialised += bool(resources.warnings)
            total += 1
    assert serialised <= max(1, total // 10)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_parameter_is_dead(name: str, compiler: Compiler) -> None:
    """Each parameter's neighbouring values give other machine code somewhere, all else equal."""
    template, problem = TEMPLATES[name], TASK.problem("4,16,512,64", causal=True)
    feasible, rng = template.space.feasible(LIMITS, problem), np.random.default_rng(1)

    def code(point: Point) -> str:
        candidate = template.candidate(point, problem)
        return compiler.compile(candidate.source, candidate.entry, "sm_90a").machine_code

    for parameter in template.space.parameters:
        tried = 0
        for point in [template.space.default, *(feasible.sample(rng) for _ in range(2000))]:
            others = [{**point, parameter.name: v} for v in parameter.neighbours(point[parameter.name])]
            others = [other for other in others if feasible.contains(other)]
            if others and code(point) != code(others[0]):
                break
            tried += bool(others)  # a cap on registers, say, changes nothing where it does not bind
            assert tried < 8, f"{parameter.name} changes nothing, for one at {dict(point)}"
        else:
            pytest.fail(f"no two feasible points differ in {parameter.name} alone")


def check_right(
    bench: Bench, template: Template, asked: list[Problem], each: int, lengths: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(5)
    for seed, problem in enumerate(asked):
        for point in sampled(template, problem, each, seed):
            for at in (problem.replace(L=length) for length in lengths):
                if template.space.why_not(point, LIMITS, at):
                    continue  # longer parts need more shared memory
                candidate = template.candidate(point, at)
                family, schedule = (
                    str(rng.choice(TASK.families.names)),
                    str(rng.choice(bench.device.schedules)),
                )
                where = f"{candidate.problem.key} {family} {schedule} {dict(point)}"
                assert bench.excess(candidate, family, schedule) < HONEST, where


@pytest.mark.nvcc
@pytest.mark.slow  # TemplateTests takes a few points of each template through the whole gate
@pytest.mark.parametrize("name", TEMPLATES)
def test_sampled_points_are_right(name: str, bench: Bench) -> None:
    check_right(bench, TEMPLATES[name], problems()[::3], 1, (1, 65, 130))


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_many_points_are_right(name: str, bench: Bench) -> None:
    lengths = (1, 63, 64, 65, 127, 129, 200, 512, 1000)
    check_right(bench, TEMPLATES[name], problems(), 2, lengths)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "changes", [{"shift": "first"}, {"shift": "none"}, {"shift": "halves"}], ids=["first", "none", "halves"]
)
@pytest.mark.parametrize("family", ["normal", "huge_end", "ascending", "large_logits", "spike"])
def test_scores_beyond_what_was_subtracted_are_taken_back(changes: Point, family: str, bench: Bench) -> None:
    """Scores far above the first tile's, or far from 0 either way: the eager attempt must not stand."""
    template = TEMPLATES["flash_wgmma_split"]
    for causal in (False, True):
        point = {**template.space.default, **changes}
        candidate = template.candidate(point, TASK.problem("1,1,512,64", causal=causal))
        assert bench.excess(candidate, family) < HONEST, causal


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "changes",
    [{}, {"shift": "first"}, {"shift": "none"}, {"shift": "halves"}],
    ids=["all", "first", "none", "halves"],
)
@pytest.mark.parametrize(
    ("length", "causal"), [pytest.param(1, False, marks=pytest.mark.slow), (1, True), (512, True)]
)
def test_a_row_with_one_key_is_its_value(changes: Point, length: int, causal: bool, bench: Bench) -> None:
    """To the last bit: a rounded weight is divided by a sum of rounded weights. A query with one key alone is
    what tells, and where there is no other, the gate's limit is below one place of the output."""
    template, problem = TEMPLATES["flash_wgmma_split"], TASK.problem(f"1,4,{length},64", causal=causal)
    point = {**template.space.default, "message": "half", **changes}
    inputs, output = bench.launched(template.candidate(point, problem), "normal")
    assert torch.equal(output[:, :, 0], inputs["v"][:, :, 0])


@pytest.mark.nvcc
@pytest.mark.parametrize("name", TEMPLATES)
def test_hidden_values_have_no_weight(name: str, bench: Bench) -> None:
    """Nor by multiply-add, whose least number was 2^-126: bf16 has it, and numbers of 3e38."""
    template, problem = TEMPLATES[name], TASK.problem("1,2,100,64", "bf16", causal=True)
    point = {**template.space.default, "polynomials": 1}
    assert template.space.why_not(point, LIMITS, problem) is None
    hidden = next(relation for relation in TASK.relations(problem) if relation.name == "hidden values")
    candidate = template.candidate(point, problem)
    _, before = bench.launched(candidate, "normal")
    _, after = bench.launched(candidate, "normal", change=hidden.change)
    expected = hidden.expected({"o": before})["o"]
    rows = ~expected.isnan().any(-1)
    assert int(rows.sum()) == 2 * 47
    assert torch.equal(after[rows], expected[rows])


@pytest.mark.nvcc
def test_a_part_that_sees_no_key_does_not_outweigh_scores_far_below_0(bench: Bench) -> None:
    """It had 0 for its maximum, beside which what another part had found with care vanished: 0 / 0."""
    template, problem = TEMPLATES["flash_wgmma_split"], TASK.problem("1,2,259,64", causal=True)
    candidate = template.candidate({**template.space.default, "shift": "none", "row_groups": 2}, problem)
    assert bench.excess(candidate, "spike") < HONEST


@pytest.mark.nvcc
def test_a_mask_reaches_into_more_than_a_parts_last_tile(bench: Bench) -> None:
    """128 queries over tiles of 32 keys that two CTAs share: three tiles of each are partly hidden."""
    template, problem = TEMPLATES["flash_wgmma_split"], TASK.problem("1,1,512,64", causal=True)
    point = {**template.space.default, "row_groups": 2, "bn": 32, "chunk": 32}
    assert template.space.why_not(point, LIMITS, problem) is None
    assert bench.excess(template.candidate(point, problem), "normal") < HONEST


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "changes",
    [
        {"grid_order": "head_fastest", "epilogue": "wide"},
        {"shift": "first", "chunk": 16},
        {"shift": "none", "epilogue": "wide", "chunk": 32},
        {"key_groups": 2, "cluster_kv": 4, "bn": 32, "chunk": 32},
        {"share": "columns", "epilogue": "wide"},
        {"share": "columns", "shift": "halves", "message": "full"},
        {"shift": "halves", "chunk": 32},
        {"share": "columns", "shift": "first", "chunk": 16},
        {"share": "columns", "shift": "none", "message": "full", "epilogue": "wide"},
    ],
)
@pytest.mark.parametrize(("length", "schedule"), [(1, "reversed"), (200, "late_copies"), (512, "seeded:1")])
def test_copies_by_threads_and_short_messages_are_right(
    changes: Point, length: int, schedule: str, bench: Bench
) -> None:
    """Parts with and without keys, whole tiles and ragged ones."""
    template = TEMPLATES["flash_wgmma_split"]
    point = {**template.space.default, "copies": "threads", "message": "half", **changes}
    assert template.space.why_not(point, LIMITS, TASK.problem("1,2,512,64", causal=True)) is None
    candidate = template.candidate(point, TASK.problem(f"1,2,{length},64", causal=True))
    assert bench.excess(candidate, "normal", schedule) < HONEST


@pytest.mark.nvcc
@pytest.mark.parametrize("family", ["normal", "huge_end", "ascending", "large_logits"])
@pytest.mark.parametrize(
    "changes",
    [
        {"row_groups": 2, "key_groups": 2, "stages": 4, "overlap": "turns"},
        {"row_groups": 2, "key_groups": 2, "stages": 4, "overlap": "turns", "key_order": "halving"},
        {"row_groups": 4, "cluster_kv": 2, "overlap": "values"},
        {"row_groups": 2, "cluster_kv": 2, "overlap": "turns", "message": "half", "epilogue": "wide"},
        {"row_groups": 4, "epilogue": "tma", "overlap": "none"},
    ],
)
def test_a_tile_that_adds_too_much_is_done_again(changes: Point, family: str, bench: Bench) -> None:
    """rescale=late where later scores are far above the first tile's."""
    template, problem = TEMPLATES["flash_wgmma"], TASK.problem("1,1,520,64", causal=True)
    point = {**template.space.default, "bn": 64, **changes, "rescale": "late"}
    assert template.space.why_not(point, LIMITS, problem) is None
    assert bench.excess(template.candidate(point, problem), family, "late_copies") < HONEST


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "changes",
    [
        {"row_groups": 3, "producer": "warpgroup", "overlap": "values", "epilogue": "tma"},
        {"row_groups": 1, "producer": "warp", "overlap": "none"},
    ],
)
def test_a_tile_that_adds_much_does_not_overflow_large_values(changes: Point, bench: Bench) -> None:
    """rescale=late, V up to 1e30: in one row the second tile outweighs the first by 2^37, and the third tile
    both. If the output is not scaled down at the second, it is infinite, and at the third NaN."""
    template, problem = TEMPLATES["flash_wgmma"], TASK.problem("1,2,193,128", "bf16")
    point = {**template.space.default, "bn": 80, "stages": 3, **changes, "rescale": "late"}
    assert template.space.why_not(point, LIMITS, problem) is None
    assert bench.excess(template.candidate(point, problem), "large", seed=39) < HONEST


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "changes",
    [
        {"epilogue": "direct", "row_groups": 1, "producer": "warp", "bn": 64},
        {"epilogue": "tma", "row_groups": 1, "producer": "warp", "bn": 64, "cluster_m": 2},
        {"epilogue": "wide", "row_groups": 1, "producer": "warp", "bn": 48, "key_groups": 2, "stages": 4},
        {"producer": "warp", "row_groups": 1, "bn": 48, "key_groups": 2, "stages": 4, "message": "half"},
        {"row_groups": 1, "producer": "warp", "bn": 48, "cluster_kv": 2, "message": "half"},
        {"row_groups": 1, "producer": "warp", "bn": 48, "key_groups": 2, "cluster_kv": 2, "overlap": "turns"},
        {"bn": 48, "query_stages": 2, "epilogue": "tma", "rescale": "late", "key_order": "halving"},
        {"bn": 48, "query_stages": 2, "epilogue": "wide", "overlap": "turns", "cluster_m": 2},
    ],
)
@pytest.mark.parametrize("schedule", ["late_copies", "late_wgmma", "reversed"])
def test_a_cta_that_stays_for_more_work_starts_clean(changes: Point, schedule: str, bench: Bench) -> None:
    """More query tiles than CTAs: what one piece of work leaves behind, the next one replaces."""
    template, problem = TEMPLATES["flash_wgmma"], TASK.problem("1,140,150,64", causal=True)
    point = {**template.space.default, **changes, "persistent": True, "longest_first": True}
    assert template.space.why_not(point, LIMITS, problem) is None
    assert bench.excess(template.candidate(point, problem), "normal", schedule) < HONEST
