"""torch.compile and `evo.kernel`: the operators, on the CPU by the fallback. Parts of torch's compiler are
imported where they are used: the processes that only collect these tests do without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from test_task_kernel import SDPA, TOYS, kernels, qkv

import evo
from evo.errors import UsageError

__all__ = ["kernels"]


@pytest.fixture(scope="module")
def attention() -> Any:
    return evo.kernel("attention")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()


def compiled(function: Any, dynamic: bool | None = None) -> Any:
    """Traced whole, with functionalization and gradients, but without a C++ compiler."""
    return torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)


def test_without_a_champion_the_compiler_sees_the_operations_of_the_fallback() -> None:
    from functorch.compile import make_boxed_func  # type: ignore[import-untyped]
    from torch._dynamo.backends.common import aot_autograd

    seen: list[str] = []

    def look(graph: Any, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    loss = evo.kernel("cross_entropy")
    assert not loss.champions
    x, labels = torch.randn(4, 96).half(), torch.arange(4)
    run = torch.compile(lambda x: loss(x, labels) * 2, fullgraph=True, backend=aot_autograd(fw_compiler=look))
    with torch.no_grad():
        assert torch.equal(run(x), loss(x, labels) * 2)
    assert any("softmax" in name for name in seen)
    assert not [name for name in seen if "evo" in name]


def test_it_is_traced_without_a_break(attention: Any) -> None:
    def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.tanh(attention(q + 1, k=k, v=v, causal=True)) * 2

    q, k, v = qkv(1, 2, 16, 64)
    expected = torch.tanh(SDPA(q + 1, k, v, is_causal=True)) * 2
    assert torch.equal(compiled(block)(q, k, v), expected)
    graph = torch._dynamo.export(block)(q, k, v).graph_module.code
    assert "torch.ops.evo.attention_causal" in graph


def test_a_dynamic_batch_is_one_graph(attention: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    count = CompileCounterWithBackend("aot_eager")
    run = torch.compile(lambda q, k, v: attention(q, k, v) + 1, fullgraph=True, backend=count, dynamic=True)
    for batch in (5, 3, 7):
        q, k, v = qkv(batch, 2, 16, 64)
        assert torch.equal(run(q, k, v), SDPA(q, k, v) + 1)
    assert count.frame_count == 1


def test_gradients_are_the_fallbacks(attention: Any) -> None:
    given = [x.requires_grad_() for x in qkv(1, 2, 16, 64, kind=torch.bfloat16)]
    expected = torch.autograd.grad(SDPA(*given).square().sum(), given)
    found = torch.autograd.grad(compiled(lambda *x: attention(*x).square())(*given).sum(), given)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs)


def test_out_and_what_is_changed_in_place_are_written(attention: Any) -> None:
    q, k, v = qkv(1, 2, 16, 64)
    o = torch.empty_like(q)
    compiled(lambda *x: attention(*x, out=o))(q, k, v)
    assert torch.equal(o, SDPA(q, k, v))
    rmsnorm = evo.kernel("rmsnorm")
    x, residual, weight = torch.randn(4, 64).half(), torch.ones(4, 64).half(), torch.ones(64).half()
    expected = rmsnorm(x, residual.clone(), weight, residual=True)
    found = compiled(lambda *given: rmsnorm(*given, residual=True))(x, residual, weight)
    assert torch.equal(found["y"], expected["y"])
    assert torch.equal(residual, expected["residual"])


def code_of(function: Any, *given: torch.Tensor, dynamic: bool = False) -> tuple[Any, str]:
    """What a function compiled by inductor gives, and inductor's code, made anew."""
    from torch._inductor.utils import fresh_cache, run_and_get_code

    with fresh_cache(), torch.no_grad():
        run = torch.compile(function, fullgraph=True, dynamic=dynamic)
        found, (code,) = run_and_get_code(run, *given)
    return found, code


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's compiler imports its own
@pytest.mark.nvcc
def test_inductor_calls_the_launcher_with_outputs_of_its_own(kernels: Path) -> None:
    """Where a champion serves, here on the emulator."""
    row_sum = evo.kernel(kernels / "row_sum", templates=TOYS, device="emulator", gpu="H200")
    x = torch.rand(200, 96)
    (whole, few), code = code_of(lambda x: (row_sum(x), row_sum(x[:7])), x)
    assert torch.allclose(whole, x.sum(-1))
    assert torch.allclose(few, x[:7].sum(-1))
    assert code.count(".write(") == 2
    assert ".default(" not in code
    found, code = code_of(row_sum, x, dynamic=True)
    assert torch.allclose(found, x.sum(-1))
    assert ".write(" not in code, "another number of rows may have no champion"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's compiler imports its own
def test_where_no_champion_serves_the_fallbacks_output_is_not_copied(attention: Any) -> None:
    q, k, v = qkv(1, 2, 16, 64)
    found, code = code_of(attention, q, k, v)
    assert torch.equal(found, SDPA(q, k, v))
    # a process that has registered a task of this name before gives the next one a number
    assert re.search(r"torch\.ops\.evo\.attention(_\d+)?\.default\(", code)
    assert ".write(" not in code


def test_little_is_looked_at_again_before_each_compiled_call(attention: Any) -> None:
    """What torch.compile asked while it traced, it guards."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return attention(q, k, v, causal=True)

    def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return SDPA(q, k, v, is_causal=True)

    guards = []
    for function in (ours, theirs):
        compiled(function)(*qkv(1, 2, 16, 64))
        (entry,) = _debug_get_cache_entry_list(function.__code__)
        lines = [line for line in str(entry.guard_manager).split("\n") if "+- " in line]
        guards.append(sum("GuardManager:" not in line for line in lines))
    assert guards[0] <= guards[1] + 15


def test_a_tensor_that_is_named_as_a_flag_is_read_as_one() -> None:
    rmsnorm = evo.kernel("rmsnorm")
    x, residual, weight = torch.randn(4, 64).half(), torch.ones(4, 64).half(), torch.ones(64).half()
    expected = rmsnorm(x, weight=weight, residual=residual.clone())
    found = compiled(lambda x, y, w: rmsnorm(x, weight=w, residual=y))(x, residual, weight)
    assert torch.equal(found["y"], expected["y"])
    assert torch.equal(residual, expected["residual"])
    plain = compiled(lambda x, w: rmsnorm(x, w, residual=False))(x, weight)
    assert torch.equal(plain, rmsnorm(x, weight))


@pytest.mark.parametrize("gradient", [False, True])
def test_torch_finds_no_fault_with_an_operator(attention: Any, gradient: bool) -> None:
    given = [x.requires_grad_(gradient) for x in qkv(1, 2, 16, 64, kind=torch.float16)]
    torch.library.opcheck(attention._operators[(True,)], tuple(given))


def test_what_cannot_be_is_said_while_it_is_traced(attention: Any) -> None:
    q, k, v = qkv(1, 2, 16, 64)
    with pytest.raises(Exception, match="attention takes no fp32"):
        compiled(attention)(q.float(), k.float(), v.float())
    with pytest.raises(UsageError):
        attention(q.float(), k.float(), v.float())
