"""Problems too large to be judged whole: pieces of them, in memory that is planned beforehand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from host_kernels import HostDevice

from evo.compile import module_state
from evo.device import LaunchReport, Region
from evo.device.synchronous import SynchronousKernel
from evo.dtype import dtype_named
from evo.errors import Red
from evo.gate import Green, check
from evo.gate.graphs import CaseMemory
from evo.gate.judge import (
    COMPARED_ELEMENTS,
    FEWEST_PIECES,
    FINALIST_ELEMENTS,
    PART_ELEMENTS,
    Judge,
    drawn_parts,
    finalist_elements,
)
from evo.gate.memory import GuardedMemory
from evo.gate.tolerance import Errors
from evo.task import Pieces, Task, load_task, tensors
from evo.trial import Binary, BufferArg, LaunchConfig, Problem, Resources

SOFTMAX = load_task("softmax")
LARGE = SOFTMAX.problem("16384,256")
"""Twice COMPARED_ELEMENTS: half of its rows are compared."""
Damage = Callable[[torch.Tensor], None]


# ---- pieces


FLAGS: dict[str, list[tuple[str, dict[str, object]]]] = {
    "rmsnorm": [("9,40", {}), ("9,40", {"residual": True, "gap": 8})],
    "layernorm": [("9,40", {})],
    "softmax": [("9,40", {}), ("9,40", {"log": True})],
    "cross_entropy": [("9,40", {"lse": True})],
    "gemm": [
        (shape, {"layout": layout, "epilogue": epilogue, "gap": gap})
        for shape in ("9,7,40,2", "7,9,40,2")
        for layout, epilogue, gap in (("NT", "bias", 8), ("NN", "residual", 0), ("TN", "bias_gelu", 1))
    ],
    "gemm_w4a16": [("3,24,256", {"zeros": True})],
}


@pytest.mark.parametrize(
    ("task", "shape", "flags"), [(task, *one) for task, several in FLAGS.items() for one in several]
)
def test_pieces_alone_have_the_outputs_that_they_have_among_others(
    task: str, shape: str, flags: dict[str, object]
) -> None:
    loaded = load_task(task)
    problem = loaded.problem(shape, None, **flags)
    pieces = loaded.pieces(problem)
    assert pieces is not None
    inputs = loaded.inputs(problem, loaded.families.plain, 3, "cpu")
    which = torch.tensor([0, 2, 5, problem.sizes[pieces.size] - 1])
    at = pieces.only(problem, which)
    own = {name: x for name, x in inputs.items() if name not in loaded.packings}
    alone = loaded.reference(at, pieces.parts(own, which))
    for name, among in pieces.parts(loaded.reference(problem, inputs), which).items():
        torch.testing.assert_close(alone[name], among, rtol=1e-12, atol=1e-12)


def test_a_task_says_its_pieces_or_is_judged_whole() -> None:
    attention = load_task("attention")
    assert attention.pieces(attention.problem("4,16,512,64")) is None
    assert drawn_parts(attention, attention.problem("4,16,512,64"), 1, COMPARED_ELEMENTS) == []
    (queries,) = drawn_parts(attention, attention.problem("1,16,16384,128"), 1, COMPARED_ELEMENTS)
    assert (len(queries), queries[0], queries[-1]) == (1024, 0, 16383)
    assert SOFTMAX.pieces(LARGE) == Pieces("rows", {"x": 0, "y": 0})


def test_of_a_finalist_as_much_is_compared_as_its_references_can_be_computed() -> None:
    attention = load_task("attention")

    def compared(shape: str) -> int:
        problem = attention.problem(shape)
        parts = drawn_parts(attention, problem, 1, finalist_elements(attention, problem))
        return sum(map(len, parts))

    assert compared("2,16,4096,64") == 0, "all at once"
    assert 1_850 < compared("1,16,16384,128") < 1_870, "2.5e11 of 2.2e12 FLOP"
    assert compared("1,16,65536,64") == 1 << 11, "no fewer than of any candidate"
    rows = SOFTMAX.problem("8192,262144")
    assert finalist_elements(SOFTMAX, rows) == FINALIST_ELEMENTS, "rows cost little"


def test_a_task_without_arithmetic_has_finalists_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(SOFTMAX), "flop", lambda *_: 0)
    assert finalist_elements(SOFTMAX, LARGE) == FINALIST_ELEMENTS


@pytest.mark.parametrize("causal", [False, True])
def test_some_queries_of_attention_have_the_outputs_that_they_have_among_others(causal: bool) -> None:
    attention = load_task("attention")
    problem = attention.problem("1,1,4700,256", causal=causal)
    pieces = attention.pieces(problem)
    assert pieces is not None, "its work is large"
    inputs = attention.inputs(problem, "peaky", 3, "cpu")
    which = torch.tensor([0, 1, 700, 4699])
    some = pieces.parts(inputs, which)
    at = pieces.only(problem, which)
    for compute in (attention.reference, attention.honest):
        among = pieces.parts(compute(problem, inputs), which)
        torch.testing.assert_close(compute(at, some)["o"], among["o"], rtol=1e-6, atol=1e-6)


def test_a_wrong_query_that_is_compared_is_named() -> None:
    attention = load_task("attention")
    problem = attention.problem("1,8,1150,256")
    inputs = attention.inputs(problem, "normal", 3, "cpu")
    judge = Judge.of(attention, problem, 7, "cpu")
    ((queries,), o) = judge.parts, attention.honest(problem, inputs)["o"]
    other = next(query for query in range(1150) if query not in queries)
    for query, within in ((other, True), (int(queries[1000]), False)):
        o[0, 1, query] *= 0.9
        (errors,) = judge.errors(inputs, [{"o": o}])
        assert Errors(*errors.tolist()).within == within
    with pytest.raises(Red) as caught:
        judge.refuse(inputs, {"o": o}, "o", Errors(*errors.tolist()))
    assert caught.value.where.startswith(f"o[0, 1, {int(queries[1000])}, ")


# ---- which are compared


def test_the_seed_draws_pieces_and_the_ends_are_among_them() -> None:
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 1, COMPARED_ELEMENTS)
    assert len(drawn) == len(set(drawn)) == COMPARED_ELEMENTS // 512
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (0, 16383)
    assert drawn_parts(SOFTMAX, LARGE, 1, COMPARED_ELEMENTS) == [drawn]
    assert drawn_parts(SOFTMAX, LARGE, 2, COMPARED_ELEMENTS) != [drawn]
    assert drawn_parts(SOFTMAX, SOFTMAX.problem("2048,1024"), 1, COMPARED_ELEMENTS) == [], "small enough"
    (few,) = drawn_parts(SOFTMAX, SOFTMAX.problem("131072,262144"), 1, COMPARED_ELEMENTS)
    assert len(few) == FEWEST_PIECES


def test_all_pieces_come_in_parts() -> None:
    problem = SOFTMAX.problem("32768,16384")
    parts = drawn_parts(SOFTMAX, problem, 1, None)
    assert [row for part in parts for row in part] == list(range(32768))
    assert all(len(part) * 2 * 16384 <= PART_ELEMENTS for part in parts)


def judged(damage: Damage, most: int | None, problem: Problem = LARGE) -> Errors:
    """What a judge of half of the rows, or of all, measures on honest outputs that were damaged."""
    inputs = SOFTMAX.inputs(problem, "normal", 5, "cpu")
    y = SOFTMAX.compute(problem, {"x": inputs["x"].float()}).to(torch.bfloat16)
    damage(y)
    judge = Judge.of(SOFTMAX, problem, 7, "cpu", most)
    (errors,) = judge.errors(inputs, [{"y": y}])
    found = Errors(*errors.tolist())
    if not found.within:
        judge.refuse(inputs, {"y": y}, "y", found)
    return found


def spoil(row: int) -> Damage:
    def damage(y: torch.Tensor) -> None:
        y[row] *= 0.9

    return damage


def test_a_wrong_row_that_is_compared_is_named() -> None:
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 7, COMPARED_ELEMENTS)
    assert judged(lambda _: None, COMPARED_ELEMENTS).within
    with pytest.raises(Red) as caught:
        judged(spoil(drawn[1000]), COMPARED_ELEMENTS)
    assert caught.value.where.startswith(f"y[{drawn[1000]}, ")


def test_of_other_rows_a_number_passes_and_nothing_else() -> None:
    (drawn,) = drawn_parts(SOFTMAX, LARGE, 7, COMPARED_ELEMENTS)
    other = next(row for row in range(16384) if row not in drawn)
    assert judged(spoil(other), COMPARED_ELEMENTS).within
    for value, reason in ((torch.nan, "NaN in the output"), (-torch.inf, "Inf in the output")):
        with pytest.raises(Red) as caught:
            judged(lambda y, value=value: y[other, 3].fill_(value), COMPARED_ELEMENTS)  # type: ignore[misc]
        assert caught.value.reason == reason
        assert caught.value.where == f"y[{other}, 3]"


def test_the_worst_part_counts_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.gate.judge.PART_ELEMENTS", 1 << 20)
    problem = SOFTMAX.problem("2600,256")
    parts = drawn_parts(SOFTMAX, problem, 7, None)
    assert len(parts) == 2
    for part in parts:
        with pytest.raises(Red) as caught:
            judged(spoil(part[17]), None, problem)
        assert caught.value.where.startswith(f"y[{part[17]}, ")


# ---- the gate on such a problem


@dataclass
class OnHost(SynchronousKernel):
    """Softmax of this process, and `damage` to what it wrote of LARGE."""

    task: Task
    problem: Problem
    damage: Damage

    @property
    def binary(self) -> Binary:
        return Binary(b"", "", "k", "sm_80", "none", Resources(32, 0, 0, 0), "", 0.0, module_state(""))

    def launch(
        self, launch: LaunchConfig, regions: Mapping[str, Region], schedule: str = "default"
    ) -> LaunchReport:
        del launch
        found = {}
        for buffer in self.task.buffers(self.problem):
            at = regions[buffer.name]
            raw = torch.frombuffer((ctypes.c_char * at.nbytes).from_address(at.address), dtype=torch.uint8)
            found[buffer.name] = raw.view(dtype_named(buffer.dtype).torch).view(buffer.shape)
        found["y"].copy_(self.task.compute(self.problem, {"x": found["x"].float()}))
        if self.problem == LARGE:
            self.damage(found["y"])
        return LaunchReport(schedule, 0.0)


def verdict(damage: Damage, thorough: bool = False) -> Green:
    launch = LaunchConfig((1, 1, 1), (32, 1, 1), 0, (BufferArg("x"), BufferArg("y")))
    return check(
        lambda at: (OnHost(SOFTMAX, at, damage), launch),
        HostDevice(launches_are_cheap=True, schedules=("default",)),
        SOFTMAX,
        LARGE,
        (8, 64),
        seed=4,
        thorough=thorough,
    )


def test_the_gate_says_how_much_it_compared() -> None:
    green = verdict(lambda _: None)
    assert green.extent.own_share == 1.0, "all of it ran"
    said = [text for text in green.extent.left_out if "compared" in text]
    assert said[-1] == "own problem, normal: normal 8,192 of 16,384 rows compared with the reference"
    assert len(said) == 3


def test_the_gate_refuses_what_is_wrong_in_part_of_such_a_problem() -> None:
    """A row in eight, whichever is drawn; one element that changes from launch to launch; one left out."""

    def some(y: torch.Tensor) -> None:
        y[3::8] *= 1.1

    with pytest.raises(Red, match="row error"):
        verdict(some)
    turns = iter(range(1000))

    def unlike(y: torch.Tensor) -> None:
        y[777, 5] = next(turns)

    with pytest.raises(Red, match="runs differ"):
        verdict(unlike)


def test_memory_of_one_launch_holds_no_image_besides() -> None:
    guarded = GuardedMemory(SOFTMAX.buffers(LARGE), (), torch_device="cpu")
    of_case = CaseMemory(Judge(SOFTMAX, LARGE), guarded, 1, True, None)
    assert of_case.images[0].data_ptr() == guarded.content.data_ptr()
    assert of_case.nbytes == 2 * guarded.nbytes
    assert of_case.befores_and_afters(5) is None
    assert guarded.content.data_ptr() not in {image.data_ptr() for image in of_case.two_images()}


# ---- inputs


def test_large_tensors_are_drawn_in_parts_with_the_same_traits(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SOFTMAX.problem("203,96")
    whole = {family: SOFTMAX.inputs(problem, family, 3, "cpu")["x"] for family in SOFTMAX.families.names}
    monkeypatch.setattr(tensors, "DRAWN_AT_ONCE", 96 * 50)
    for family, drawn in whole.items():
        x = SOFTMAX.inputs(problem, family, 3, "cpu")["x"]
        assert torch.equal(x, SOFTMAX.inputs(problem, family, 3, "cpu")["x"]), "the same for the same seed"
        assert x.shape == drawn.shape
        assert x.dtype == drawn.dtype
        assert family != "normal" or (x == 0).all(1).sum() > 20
        assert torch.equal((x == 0).all(1), (drawn == 0).all(1)), family
        assert torch.equal((x == x[:, :1]).all(1), (drawn == drawn[:, :1]).all(1)), family
        assert not torch.equal(x[:48].flatten(), x[48:96].flatten())


def test_fp16_outputs_stay_in_range_in_parts_as_they_do_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rmsnorm = load_task("rmsnorm")
    problem = rmsnorm.problem("64,96", "fp16", residual=True)
    drawn = rmsnorm.inputs(problem, "large", 1, "cpu")
    monkeypatch.setattr("evo.task.pieces.DRAWN_AT_ONCE", 96 * 20)
    again = rmsnorm.inputs(problem, "large", 1, "cpu")
    assert all(torch.equal(drawn[name], again[name]) for name in drawn)
