"""examples/llama.py, run on a small Llama with random weights: nothing is downloaded."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from benchmarks.leaving.llama import tutorial

LENGTH = 24


@pytest.fixture(scope="module")
def transformers() -> Any:
    """Imported where it is used: it takes longer than all that the other files import, torch included."""
    with warnings.catch_warnings():  # those of its own imports
        warnings.simplefilter("ignore")
        found = pytest.importorskip(
            "transformers", reason="transformers is not installed: pip install '.[dev]'"
        )
        assert found.LlamaConfig, "loaded as it is first looked at"
        assert found.LlamaForCausalLM
    return found


@pytest.fixture(params=[2, 1], ids=["as many heads", "groups of heads"])
def models(request: pytest.FixtureRequest, transformers: Any) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """The model as it is, one that was changed, and what the example defines."""
    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=request.param, max_position_embeddings=64, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    own = transformers.LlamaForCausalLM(config).eval().to(torch.bfloat16)
    changed, defined = copy.deepcopy(own), tutorial()
    defined["use_kernels"](changed)
    with torch.no_grad():
        yield own, changed, defined


def tokens(batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 100, (batch, LENGTH), generator=torch.Generator().manual_seed(1))


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Logits are about 0.1; bf16 rounds to 8 bits, and a layer rounds a dozen times."""
    return bool((one.float() - other.float()).norm() < 0.02 * other.float().norm())


def test_logits_stay_what_they_were(models: tuple[Any, Any, dict[str, Any]]) -> None:
    own, changed, defined = models
    assert near(changed(tokens()).logits, own(tokens()).logits)
    norms = [module for module in changed.modules() if isinstance(module, defined["Norm"])]
    assert len(norms) == 5
    (attended,) = defined["attention"].table()
    assert attended.problem == f"attention B=2 H=2 L={LENGTH} D=64 causal=1 bf16"
    assert [one.problem for one in defined["rmsnorm"].table()] == [
        f"rmsnorm rows={2 * LENGTH} columns=128 residual=0 gap=0 bf16"
    ]


def test_decoding_and_padding_are_served_too(models: tuple[Any, Any, dict[str, Any]]) -> None:
    own, changed, _ = models
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, :5] = 0
    found, due = (model(tokens(), attention_mask=mask).logits[1] for model in (changed, own))
    assert near(found, due)
    given = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    found, due = (model.generate(tokens(), **given) for model in (changed, own))
    assert torch.equal(found[:, : LENGTH + 1], due[:, : LENGTH + 1])


@pytest.mark.slow
def test_the_changed_model_is_compiled_whole(models: tuple[Any, Any, dict[str, Any]]) -> None:
    """Its norms are torch's there, which a compiler joins with other operations."""
    own, changed, _ = models
    normalised: list[torch.dtype] = []

    def backend(graph: Any, inputs: Any) -> Any:
        norms = [node for node in graph.graph.nodes if "rms_norm" in str(node.target)]
        normalised.extend(node.args[0].meta["example_value"].dtype for node in norms)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    run = torch.compile(lambda ids: changed(ids, use_cache=False).logits, fullgraph=True, backend=backend)
    assert near(run(tokens()), own(tokens()).logits)
    assert normalised == [torch.bfloat16] * 5
