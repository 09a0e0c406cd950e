"""Calls with a tensor of more than 2^31 elements, without a GPU: `evo.kernel`, `evo champion` and an exported
folder leave them to kernels that were checked on that very problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kept import kept
from test_export_kernels import CHOSEN, H200, TASK, bundle, folder, package

import evo as library
from evo.cache import Cache, default_folder
from evo.compile import find_compiler
from evo.confirm.champions import champions, kernels_folder
from evo.confirm.choice import choose, consider
from evo.confirm.portfolio import rows_of
from evo.errors import NothingFound
from evo.export import bundle_of
from evo.gpu import Limits, target
from evo.launch.dispatch import TOO_LARGE, Dispatch
from evo.launch.packaged import PackagedKernel

__all__ = ["bundle", "folder", "package"]
LARGE, ITS_HALF = (64, 8, 131072, 64), (32, 8, 131072, 64)
"""2^32 and 2^31 elements a tensor."""
CAUSAL = {"causal": True}


def meta(shape: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=torch.float16, device="meta") for _ in range(3)]


def test_the_call_is_the_fallbacks_and_says_why(evo: Any) -> None:
    attention = library.kernel("attention")
    served = attention.explain(*meta(ITS_HALF), gpu="H200", causal=True).decision
    assert "doublings away" in served.why
    told = attention.explain(*meta(LARGE), gpu="H200", causal=True)
    assert told.decision.kernel == ""
    assert told.decision.why.endswith(f"causal=1 fp16 on sm_90a: {TOO_LARGE}")
    assert f"not {served.kernel}: {TOO_LARGE}" in str(told)
    words = ["champion", "attention", "--flag", "causal=true", "--gpu", "H200", "--explain", "--shape"]
    assert evo(*words, ",".join(map(str, ITS_HALF))).code == 0
    said = evo(*words, ",".join(map(str, LARGE)), "--json")
    assert said.code == 4
    assert TOO_LARGE in said.out


def test_an_exported_folder_decides_alike(package: Any) -> None:
    assert "doublings away" in package.attention.explain(*meta(ITS_HALF), causal=True, place=H200)
    told = package.attention.explain(*meta(LARGE), causal=True, place=H200)
    assert told.startswith("torch.nn.functional.scaled_dot_product_attention: no kernel serves it on NVIDIA")
    assert TOO_LARGE in told


@pytest.mark.nvcc
def test_the_champion_of_that_very_problem_serves_it(tmp_path: Path) -> None:
    shape = ",".join(map(str, LARGE))
    own = kept("attention", "flash_wgmma", shape, {}, "sm_90a", causal=True)
    limits, near = Limits.of(target("sm_90a")), own.problem.replace(B=65)
    others = [one for one in champions(kernels_folder()) if one.name.endswith(CHOSEN[1])]
    assert choose(own.problem, limits, [*others, own]).champion is own
    assert [one.why for one in consider(near, limits, [*others, own])] == [TOO_LARGE, TOO_LARGE]
    with pytest.raises(NothingFound, match=TOO_LARGE):
        choose(near, limits, [*others, own])
    with find_compiler(None, Cache(default_folder()), parts=("cubin",)) as compiler:
        record = bundle_of(TASK, [own], rows_of([own]), compiler).record()
    (tmp_path / "dispatch.json").write_text(json.dumps(record))
    dispatch = Dispatch(tmp_path)
    assert "made for this very problem" in dispatch.decide(H200, "fp16", CAUSAL, own.problem.sizes).why
    assert TOO_LARGE in dispatch.decide(H200, "fp16", CAUSAL, near.sizes).why
    call = PackagedKernel(tmp_path, "evo_attention_far")
    assert call.explain(*meta(LARGE), causal=True, place=H200).startswith(record["kernels"][0]["name"])
