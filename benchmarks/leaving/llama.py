"""A step of a small random Llama, as it is and with the kernels of the tutorial, eager and compiled.

Needs transformers and a GPU, where it takes about a minute, most of it torch.compile.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.leaving.turns import Work, device_us, told
from evo.task import load_module

PROTOCOL = """µs of a forward pass over 1 x 512 tokens without a cache: 5 of them one after another and a
synchronization, divided by 5; variants in turns, medians over rounds with 95 % intervals. Llama of fp16
with 4 layers, 8 heads of 64 (of which none are shared), random weights. `attention` has its attention
changed as examples/llama.py does, `attention and norms` its norms, too. Compiled: mode "default",
fullgraph. `off by` is the norm of the logits' difference from the model's own, by that of the logits."""
GPU = True
TOKENS, LAYERS, HEADS, VOCABULARY, TOGETHER = 512, 4, 8, 1000, 5


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="rounds (default: 100)")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("error: this needs an NVIDIA GPU")
    ids = torch.randint(0, VOCABULARY, (1, TOKENS), device="cuda")
    found: dict[str, Any] = {}
    with torch.no_grad():
        forms = models()
        own = _step(forms["own"], ids).float()
        off = {name: (_step(model, ids).float() - own).norm() / own.norm() for name, model in forms.items()}
        found["off by"] = {name: round(float(value), 5) for name, value in off.items()}
        for form in ("eager", "compiled"):
            steps: dict[str, Work] = {}
            for name, model in forms.items():
                step = partial(_step, model)
                step = torch.compile(step, fullgraph=True) if form == "compiled" else step
                steps[name] = partial(step, ids)
            results = told(device_us(steps, asked.rounds, TOGETHER), "own")
            for one in results.values():
                one["tokens_per_s"] = round(TOKENS / one["median_us"] * 1e6)
            found[form] = results
            yield found


def models() -> dict[str, Any]:
    """The same weights each time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64 * HEADS,
        intermediate_size=256 * HEADS,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=TOKENS,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    own = LlamaForCausalLM(config).eval().half().cuda()
    whole, defined = copy.deepcopy(own), tutorial()
    defined["use_kernels"](whole)
    attention = copy.deepcopy(own)
    attention.set_attn_implementation("evo")  # registered by now
    return {"own": own, "attention": attention, "attention and norms": whole}


def tutorial() -> dict[str, Any]:
    """What examples/llama.py defines."""
    return vars(
        load_module(Path(__file__).parents[2] / "examples" / "llama.py")
    )  # torch.compile needs a module


def _step(model: Any, ids: Any) -> Any:
    return model(ids, use_cache=False).logits
