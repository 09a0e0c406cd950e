"""Two searches of the same length, one on tensors of a model and one on N(0, 1): how the winners differ, and
what each takes on both.

The model is a small transformer with random weights. Its projections are scaled until the scores of its
attention have the deviation that those of trained models have. `evo.capture` records its calls."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

import evo
from benchmarks.command import evo_json
from evo.calls import read_calls, read_tensors

PROTOCOL = """A transformer of random weights, whose projections are scaled until scores have the deviation
that is asked for, is recorded by evo.capture. attention is searched on these calls, ranked by the worst
timing input, and for as long on made inputs, ranked by N(0, 1). Both winners then take turns with the quick
baselines on all inputs in rounds of `evo bench` (warm, medians of ten rounds), after the thorough gate."""
GPU = True
PLAIN = "normal"
"""The timing input N(0, 1)."""
FILE = "model.npz"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", default="1,8,512,64", help="B,H,L,D")
    parser.add_argument("--deviation", type=float, default=3.5, help="of the scores")
    parser.add_argument("--layers", type=int, default=4, help="of the model; each is a call")
    parser.add_argument("--budget", default="45s", help="of each search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--template", action="append", default=[], help="only this one; may be repeated")


def run(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        file = folder / FILE
        found: dict[str, Any] = {"inputs": recorded(file, asked)}
        yield found
        database = ["--database", str(folder / "evo.db")]
        words = ["--budget", asked.budget, "--seed", str(asked.seed), *database]
        words += [word for name in asked.template for word in ("--template", name)]
        searches = {
            "captured": ["--inputs", str(file)],
            "noise": ["--shape", asked.shape, "--rank", PLAIN],
        }
        winners: dict[str, dict[str, Any]] = {}
        for name, own in searches.items():
            best = evo_json("search", "attention", "--warm-start=none", "--study", name, *own, *words)[0]
            kept = ("template", "point", "kind", "median_us", "ranking")
            trial = f"{best['study']}/{best['number']}"
            winners[name] = {"trial": trial, **{key: best[key] for key in kept}}
            winners[name]["search_us"] = {on: time["median_us"] for on, time in best["times"].items()}
            yield found | {"winners": winners}
        yield found | compared(winners, file, database)


def compared(winners: dict[str, dict[str, Any]], file: Path, database: Sequence[str]) -> dict[str, Any]:
    """Both winners side by side on the calls and on all made inputs, beside the quick baselines."""
    trials = [word for one in winners.values() for word in ("--trial", one["trial"])]
    (sheet,) = evo_json("bench", "attention", "--inputs", str(file), "--quick", *trials, *database)
    standings = sheet["standings"]
    for one in winners.values():
        standing = standings.get(one["trial"])
        one["times_us"] = times_us(standing) if standing else {}
        one["absent"] = sheet["absent"].get(one["trial"], "")
    others = {name for name in standings if name not in {one["trial"] for one in winners.values()}}
    points = [(one["template"], one["point"]) for one in winners.values()]
    return {
        "problem": sheet["problem"],
        "winners": winners,
        "differ": points[0] != points[1],
        "others_us": {name: times_us(standings[name]) for name in sorted(others)},
        "clocks": sheet["clocks"],
    }


def times_us(standing: Mapping[str, Any]) -> dict[str, float]:
    """The medians by timing input, and the worst of them."""
    found = {on: time["median_us"] for on, time in standing["times"].items()}
    return found | {"worst": max(found.values())}


def recorded(path: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Records a call of each layer of the model; the deviation of the scores of each."""
    batch, heads, length, d = map(int, asked.shape.split(","))
    where = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(asked.seed)
    layer = torch.nn.TransformerEncoderLayer(heads * d, heads, batch_first=True, norm_first=True)
    model = torch.nn.TransformerEncoder(layer, asked.layers, enable_nested_tensor=False).to(where).eval()
    x = torch.randn(batch, length, heads * d, device=where)
    with torch.no_grad():
        sharpen(model, x, heads, asked.deviation)
        with evo.capture(path, calls_per_shape=asked.layers):
            model.half()(x.half())
    calls = [read_tensors(path, call) for call in read_calls(path)]
    deviations = [float(scores(call["q"].float(), call["k"].float()).std()) for call in calls]
    return {"calls": len(calls), "score_deviations": deviations}


def sharpen(model: torch.nn.TransformerEncoder, x: Tensor, heads: int, deviation: float) -> None:
    """Scales the projections of queries and keys of each layer, in place, until the scores of `x` there have
    this deviation. Other weights are drawn anew for each layer: copies of one would all be alike."""
    for layer in model.layers:
        for weight in layer.parameters():
            if weight.dim() > 1:
                torch.nn.init.xavier_uniform_(weight)
        attention, inner = layer.self_attn, layer.norm1(x)
        width = attention.embed_dim
        part = attention.in_proj_weight[: 2 * width]
        q, k = (
            side.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
            for side in linear(inner, part).split(width, dim=-1)
        )
        part.mul_(math.sqrt(deviation / float(scores(q, k).std())))
        x = layer(x)


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
