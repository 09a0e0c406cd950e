"""What every task must keep to, whatever it computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from evo.dtype import dtype_named
from evo.errors import Red, UsageError
from evo.gate.tolerance import broken, compare
from evo.task import Task, load_task
from evo.trial import MEAN, PLAIN, WORST, Problem

if TYPE_CHECKING:
    from torch import Tensor


class TaskTests:
    """Set `task` (and `folders`, where it does not come with evo). Problems are tried at the sizes that the
    task's own gate problems have for `tiles`, at most `largest_flop` operations each."""

    task: ClassVar[str]
    folders: ClassVar[tuple[Path, ...]] = ()
    tiles: ClassVar[tuple[int, ...]] = (16, 32)
    largest_flop: ClassVar[float] = 1e9

    @pytest.fixture
    def loaded(self) -> Task:
        return load_task(self.task, self.folders)

    def small_problems(self, task: Task) -> Iterator[Problem]:
        """Gate problems of every storage type and of every value of every flag."""
        kinds = [task.example.replace(dtype=dtype) for dtype in task.dtypes]
        for name, flag in task.flags.items():
            kinds += [task.example.replace(**{name: value}) for value in flag.values]
        for kind in {kind.key: kind for kind in kinds}.values():
            for problem in task.gate_problems(kind, self.tiles)[:3]:
                if task.flop(problem) <= self.largest_flop:
                    yield problem

    def test_the_example_is_a_problem_of_its_own_shape_text(self, loaded: Task) -> None:
        example = loaded.example
        assert example.task == self.task == loaded.name
        assert tuple(example.sizes) == tuple(loaded.sizes)
        assert loaded.problem(example.shape, example.dtype, **example.flags) == example

    def test_malformed_shapes_dtypes_and_flags_are_refused_with_a_hint(self, loaded: Task) -> None:
        shape = loaded.example.shape
        for wrong in ("", shape + ",1", shape.replace(shape[0], "x", 1), "-" + shape):
            with pytest.raises(UsageError) as caught:
                loaded.problem(wrong)
            assert caught.value.hint
        with pytest.raises(UsageError):
            loaded.problem(shape, "no_such_dtype")
        with pytest.raises(UsageError):
            loaded.problem(shape, no_such_flag=True)

    def test_every_named_problem_is_one(self, loaded: Task) -> None:
        for problems in loaded.problems.values():
            for problem in problems:
                assert loaded.problem(problem.shape, problem.dtype, **problem.flags) == problem

    def test_families_have_names_once_and_a_plain_one_first(self, loaded: Task) -> None:
        names = loaded.families.names
        assert names[0] == loaded.families.plain
        assert len(set(names)) == len(names)
        with pytest.raises((UsageError, KeyError, ValueError)):
            loaded.inputs(loaded.gate_problems(loaded.example, self.tiles)[0], "no such family", 0, "cpu")

    def test_inputs_fit_their_buffers_and_follow_the_seed(self, loaded: Task) -> None:
        import torch

        for problem in self.small_problems(loaded):
            read = {b.name: b for b in loaded.buffers(problem) if b.read}
            for family in loaded.families.names:
                one, same = (loaded.inputs(problem, family, 3, "cpu") for _ in range(2))
                assert set(one) == set(read), problem.key
                for name, tensor in one.items():
                    assert tuple(tensor.shape) == read[name].shape, f"{problem.key} {family} {name}"
                    assert tensor.dtype == dtype_named(read[name].dtype).torch
                    assert tensor.is_contiguous()
                    assert torch.equal(tensor, same[name]), f"{family} is not a function of the seed"

    def test_packed_inputs_hold_what_they_are_made_of(self, loaded: Task) -> None:
        for problem in self.small_problems(loaded):
            for family in loaded.families.names:
                inputs = loaded.inputs(problem, family, 3, "cpu")
                for name, packing in loaded.packings.items():
                    assert packing.broken(problem, inputs) is None, f"{name} of {family} at {problem.key}"

    def test_inputs_are_finite_and_within_the_ranges_of_their_family(self, loaded: Task) -> None:
        assert set(loaded.ranges) <= set(loaded.families.names)
        for problem in self.small_problems(loaded):
            for family in loaded.families.names:
                for seed in range(4):
                    inputs = loaded.inputs(problem, family, seed, "cpu")
                    assert all(bool(tensor.isfinite().all()) for tensor in inputs.values())
                    measured = loaded.measures(problem, inputs)
                    for name, (low, high) in loaded.ranges.get(family, {}).items():
                        said = f"{name} of {family} at {problem.key}, seed {seed}"
                        assert low <= measured[name] <= high, said

    def test_timing_inputs_have_reasons_and_the_plain_one_comes_first(self, loaded: Task) -> None:
        names = list(loaded.timing_inputs)
        assert names[0] == loaded.families.plain
        assert all(loaded.timing_inputs.values()), "a timing input says why it is there"
        assert not {WORST, MEAN, PLAIN} & set(names), "these words are rankings"
        with pytest.raises((UsageError, KeyError, ValueError)):
            loaded.timing_tensors(loaded.example, "no such timing input", 0, "cpu")

    def test_timing_inputs_fit_their_buffers_and_follow_the_seed(self, loaded: Task) -> None:
        import torch

        for problem in self.small_problems(loaded):
            read = {b.name: b for b in loaded.buffers(problem) if b.read}
            for name in loaded.timing_inputs:
                one, same = (loaded.timing_tensors(problem, name, 3, "cpu") for _ in range(2))
                assert set(one) == set(read), problem.key
                for buffer, tensor in one.items():
                    assert tuple(tensor.shape) == read[buffer].shape, f"{problem.key} {name} {buffer}"
                    assert tensor.dtype == dtype_named(read[buffer].dtype).torch
                    assert torch.equal(tensor, same[buffer]), f"{name} is not a function of the seed"

    def test_outputs_of_timing_inputs_are_finite(self, loaded: Task) -> None:
        """What timed launches leave is judged: a result that its type does not hold would be wrong."""
        for problem in self.small_problems(loaded):
            for name in loaded.timing_inputs:
                inputs = loaded.timing_tensors(problem, name, 3, "cpu")
                for output, tensor in loaded.honest(problem, inputs).items():
                    assert bool(tensor.isfinite().all()), f"{output} of {name} at {problem.key}"

    def test_plain_inputs_differ_from_seed_to_seed(self, loaded: Task) -> None:
        import torch

        plain, example = loaded.families.plain, loaded.gate_problems(loaded.example, self.tiles)[0]
        one, other = (loaded.inputs(example, plain, seed, "cpu") for seed in (1, 2))
        assert any(not torch.equal(one[name], other[name]) for name in one)

    def test_reference_and_honest_give_every_output(self, loaded: Task) -> None:
        import torch

        for problem in self.small_problems(loaded):
            written = {b.name: b for b in loaded.buffers(problem) if b.written}
            for family in loaded.families.names:
                inputs = loaded.inputs(problem, family, 1, "cpu")
                kept = {name: tensor.clone() for name, tensor in inputs.items()}
                exact, honest = loaded.reference(problem, inputs), loaded.honest(problem, inputs)
                assert set(exact) == set(honest) == set(written)
                for name, buffer in written.items():
                    kind = dtype_named(buffer.dtype)
                    assert tuple(exact[name].shape) == tuple(honest[name].shape) == buffer.shape
                    assert honest[name].dtype == kind.torch
                    if kind.floating:
                        assert exact[name].dtype == torch.float64, f"the reference of {name} is not fp64"
                assert all(torch.equal(kept[name], inputs[name]) for name in kept), "inputs were changed"

    def test_the_honest_computation_passes_and_another_answer_does_not(self, loaded: Task) -> None:
        for problem in self.small_problems(loaded):
            inputs = loaded.inputs(problem, loaded.families.plain, 2, "cpu")
            exact, honest = loaded.reference(problem, inputs), loaded.honest(problem, inputs)
            for name in honest:
                compare(name, honest[name], exact[name], honest[name], loaded.tolerance)
                with pytest.raises(Red):
                    compare(name, _wrong(honest[name]), exact[name], honest[name], loaded.tolerance)

    def test_relations_hold_for_the_honest_computation(self, loaded: Task) -> None:
        for problem in self.small_problems(loaded):
            inputs = loaded.inputs(problem, loaded.families.plain, 2, "cpu")
            before = loaded.honest(problem, inputs)
            for relation in loaded.relations(problem):
                after = loaded.honest(problem, relation.change(inputs))
                for name, _, _, wrong in broken(relation, before, after, loaded.tolerance):
                    assert not wrong.any(), f"{relation.name}: {name} at {problem.key}"

    def test_gate_problems_are_small_and_different(self, loaded: Task) -> None:
        problems = loaded.gate_problems(loaded.example, self.tiles)
        assert problems
        assert len({problem.key for problem in problems}) == len(problems)
        for problem in problems:
            assert problem.dtype == loaded.example.dtype
            assert problem.flags == loaded.example.flags
            assert min(problem.sizes.values()) >= 1

    def test_work_is_positive_and_a_share_is_less(self, loaded: Task) -> None:
        example = loaded.example
        assert loaded.flop(example) > 0
        assert loaded.nbytes(example) > 0
        assert loaded.flop(loaded.share(example, 0.0)) <= loaded.flop(example)
        assert loaded.share(example, 1.0) == example

    def test_groups_of_baselines_are_of_baselines(self, loaded: Task) -> None:
        for problem in self.small_problems(loaded):
            for name, run in loaded.baselines(problem, "cpu").items():
                assert name
                run(loaded.inputs(problem, loaded.families.plain, 0, "cpu"))


def _wrong(answer: Tensor) -> Tensor:
    """Another answer: off by a tenth, and by one where it is zero or whole."""
    return answer * 1.1 + 1 if answer.is_floating_point() else answer + 1
