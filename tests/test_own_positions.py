"""Kernels as people write them: `evo new` reads how they are launched, and what it makes is right at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import ROOT, Evo

from evo.errors import UsageError
from evo.importers import make_task
from evo.importers.linear import factor_of, sum_of, text_of
from evo.importers.source import read_source
from evo.task import load_task
from evo.template import load_template

KERNELS = {path.stem: path.read_text() for path in (Path(__file__).parent / "newcomers").glob("*.cu")}
QUANTISE = KERNELS["quantise"]
STAYS = "in mine.cu: the launch depends on it, and it is not tuned."


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.cu"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "block", "grid", "tunables"),
    [
        ("quantise", ["BLOCK"], ["ceil(n / (BLOCK * ITEMS))"], {"BLOCK": 256, "ITEMS": 4}),
        ("quantise_strided", ["BLOCK"], ["ceil(n / (BLOCK * ITEMS))"], {"BLOCK": 256, "ITEMS": 4}),
        ("quantise_tile", ["BLOCK"], ["ceil(n / (BLOCK * ITEMS))"], {"BLOCK": 256, "ITEMS": 4}),
        ("softmax_warp", ["32 * WARPS_PER_BLOCK"], ["ceil(rows / WARPS_PER_BLOCK)"], {"WARPS_PER_BLOCK": 4}),
        ("row_norm", ["32 * NUM_WARPS"], ["ceil(rows / NUM_WARPS)"], {"NUM_WARPS": 4}),
        ("row_norm_of_grid", ["32 * WARPS"], ["ceil(rows / WARPS)"], {"WARPS": 8}),
        ("rms_two_axes", ["32", "WARPS"], ["ceil(rows / WARPS)"], {"WARPS": 4}),
        ("rms_grid_stride", ["32 * WARPS"], ["ceil(rows / WARPS)"], {"WARPS": 4}),
        (
            "transpose",
            ["TILE_DIM", "BLOCK_ROWS"],
            ["ceil(cols / TILE_DIM)", "ceil(rows / TILE_DIM)"],
            {"TILE_DIM": 32, "BLOCK_ROWS": 8},
        ),
        ("layernorm", ["THREADS"], ["rows"], {"THREADS": 256}),
        ("gather", ["BLOCK_SIZE"], ["num_rows"], {"BLOCK_SIZE": 256}),
        ("bias_gelu", ["BLOCK"], ["ceil(rows * hidden2 / BLOCK)"], {"BLOCK": 256}),
        ("scan_rows", ["BLOCK"], ["rows"], {"BLOCK": 128}),
        ("argmax", ["THREADS"], ["M"], {"THREADS": 128}),
        ("stencil", ["TILE"], ["ceil(n / (TILE - 4))"], {"TILE": 64}),
        ("axpy_vectors", ["kBlock"], ["ceil(n / 4 / kBlock)"], {"kBlock": 256}),
        ("products", ["TILE", "TILE"], ["ceil(n / TILE)", "ceil(m / TILE)", "batches"], {"TILE": 16}),
        (
            "product_one_axis",
            ["BLOCKSIZE * BLOCKSIZE"],
            ["ceil(M / BLOCKSIZE)", "ceil(N / BLOCKSIZE)"],
            {"BLOCKSIZE": 32},
        ),
        ("histogram", ["BLOCK"], ["ceil(n / (BLOCK * ITEMS))"], {"BLOCK": 256, "ITEMS": 8}),
        ("members", ["128"], ["ceil(n / 256)"], {}),
        ("number", ["256"], ["ceil(n / 256)"], {}),
    ],
)
def test_block_and_grid_are_what_the_indices_say(
    tmp_path: Path, name: str, block: list[str], grid: list[str], tunables: dict[str, int]
) -> None:
    found = read_source(written(tmp_path, KERNELS[name]))
    assert list(found.launch.block) == block
    assert [axis.ctas(axis.size) for axis in found.launch.axes] == grid
    assert dict(sorted(found.tunables.items())) == dict(sorted(tunables.items()))
    assert all(re.search(rf"#ifndef {macro}\b", found.text) for macro in tunables)


@pytest.mark.parametrize(
    ("name", "block", "grid"),
    [
        ("gemm", ["tile_n / each_n", "tile_m / each_m"], ["ceil(n / tile_n)", "ceil(m / tile_m)"]),
        ("rms_norm", ["threads", "rows_a_cta"], ["ceil(rows / rows_a_cta)"]),
        ("softmax", ["32 * warps"], ["rows"]),
        ("transpose", ["tile", "block_size_y"], ["ceil(columns / tile)", "ceil(rows / tile)"]),
        (
            "conv2d",
            ["block_size_x", "block_size_y"],
            ["ceil(width / block_size_x)", "ceil(height / (block_size_y * per_thread))"],
        ),
    ],
)
def test_the_launches_of_the_examples_are_read_from_their_sources(
    name: str, block: list[str], grid: list[str]
) -> None:
    found = read_source(ROOT / "examples" / name / f"{name}.cu", name)
    assert list(found.launch.block) == block
    assert [axis.ctas(axis.size) for axis in found.launch.axes] == grid


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("softmax_warp", {"x": ("rows", "cols"), "y": ("rows", "cols")}),
        ("transpose", {"in": ("rows", "cols"), "out": ("cols", "rows")}),
        (
            "layernorm",
            {"x": ("rows", "hidden"), "gamma": ("hidden",), "beta": ("hidden",), "y": ("rows", "hidden")},
        ),
        ("gather", {"table": ("vocab", "dim"), "index": ("num_rows",), "out": ("num_rows", "dim")}),
        ("bias_gelu", {"x": ("rows", "hidden2"), "bias": ("hidden2",), "y": ("rows", "hidden2")}),
        ("products", {"a": ("batches", "m", "k"), "b": ("batches", "k", "n"), "c": ("batches", "m", "n")}),
        ("histogram", {"data": ("n",), "hist": ("bins",)}),
    ],
)
def test_shapes_follow_pointers_flat_indices_and_indices_of_rows(
    tmp_path: Path, name: str, shapes: dict[str, tuple[str, ...]]
) -> None:
    found = read_source(written(tmp_path, KERNELS[name]))
    assert found.shapes == shapes
    assert name == "histogram" or "inout" not in {a.role for a in found.arguments}


def test_rows_by_an_index_are_below_the_number_of_rows(tmp_path: Path) -> None:
    make_task("mine", tmp_path, written(tmp_path, KERNELS["gather"]))
    task = load_task("mine", (tmp_path,))
    index = task.inputs(task.example, "normal", 1, "cpu")["index"]
    assert 0 <= int(index.min()) <= int(index.max()) < task.example.sizes["vocab"]


@pytest.mark.parametrize(
    ("text", "said", "covered"),
    [
        (KERNELS["axpy_vectors"], f"# VEC is 4 {STAYS}", 1024),
        (KERNELS["stencil"], f"# R is 2 {STAYS}", 60),
        (KERNELS["members"], f"# THREADS is 128, PER is 2 {STAYS}", 256),
        (QUANTISE.replace("int ITEMS = 4", "int ITEMS = 4, OTHER = 2"), f"# ITEMS is 4 {STAYS}", 1024),
        (QUANTISE.replace("constexpr int ITEMS = 4;", "enum { ITEMS = 4 };"), f"# ITEMS is 4 {STAYS}", 1024),
        (QUANTISE.replace("ITEMS", "VEC"), f"# VEC is 4 {STAYS}", 1024),
        (QUANTISE.replace("ITEMS = 4", "ITEMS = 16 / sizeof(float)"), '"ceil(n / (4 * BLOCK))"', 1024),
    ],
)
def test_a_constant_that_cannot_be_tuned_counts_and_is_named(
    tmp_path: Path, text: str, said: str, covered: int
) -> None:
    make_task("mine", tmp_path, written(tmp_path, text))
    assert said in (tmp_path / "mine" / "mine.py").read_text()
    task = load_task("mine", (tmp_path,))
    template = load_template(task, "mine", (tmp_path,))
    launch = template.candidate(template.space.default, task.example).launch
    assert launch.grid[0] == -(-1_000_000 // covered)


RIGHT = {
    "quantise": ("quantise", "{'q': (2.0 * x).round().clamp(-127, 127).long()}", "5000", ["ITEMS=2"]),
    "tiles": (
        "quantise_tile",
        "{'q': (2.0 * x).round().clamp(-127, 127).long()}",
        "5000",
        ["ITEMS=2", "BLOCK=64"],
    ),
    "softmax": ("softmax_warp", "{'y': x.softmax(-1)}", "37,100", ["WARPS_PER_BLOCK=2"]),
    "norm": ("row_norm_of_grid", "{'norm': x.square().sum(-1).sqrt()}", "37,100", ["WARPS=4"]),
    "rms": ("rms_two_axes", "{'y': x * (x.square().mean(-1, True) + 1e-6).rsqrt()}", "37,100", ["WARPS=2"]),
    "transpose": ("transpose", "{'out': x.T}", "70,45", ["TILE_DIM=16"]),
    "gather": ("gather", "{'out': x[tensors['index']]}", "33,50,70", []),
}


@pytest.mark.nvcc
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_made_is_green_at_once(evo: Evo, tmp_path: Path, name: str) -> None:
    kernel, formula, shape, point = RIGHT[name]
    assert evo("new", name, "--from", str(written(tmp_path, KERNELS[kernel]))).code == 0
    task = tmp_path / "tasks" / name / "task.py"
    right = f"x = next(iter(tensors.values())); return {formula}"
    task.write_text(re.sub(r"raise NotImplementedError.*", right, task.read_text()))
    for words in ([], point):
        tried = evo("try", name, *words, "--shape", shape, "--device", "emulator", "--json")
        assert json.loads(tried.out)["outcome"] == "GREEN", tried.out


@pytest.mark.nvcc
def test_a_search_of_a_quantiser_tries_its_constant(evo: Evo, tmp_path: Path) -> None:
    assert evo("new", "quantise", "--from", str(written(tmp_path, QUANTISE))).code == 0
    task = tmp_path / "tasks" / "quantise" / "task.py"
    right = "return {'q': (2.0 * tensors['x']).round().clamp(-127, 127).long()}"
    task.write_text(re.sub(r"raise NotImplementedError.*", right, task.read_text()))
    template = task.with_name("quantise.py")
    template.write_text(template.read_text().replace("[256, 64, 128, 512, 1024]", "[64]"))
    words = ["--shape", "2000", "--device", "emulator", "--budget", "5m", "--workers", "1"]
    assert evo("search", "quantise", *words).code == 0
    trials = json.loads(evo("leaderboard", "--json").out)
    assert sorted(one["point"]["ITEMS"] for one in trials) == [2, 4, 8, 16]


def test_a_shape_that_the_formula_does_not_have_is_said(tmp_path: Path) -> None:
    """Also where both sizes of the example are the same."""
    make_task("mine", tmp_path, written(tmp_path, KERNELS["transpose"]))
    task = tmp_path / "mine" / "task.py"
    text = re.sub(r"raise NotImplementedError.*", "return tensors['in'].T", task.read_text())
    task.write_text(text.replace('Out("cols", "rows")', 'Out("rows", "rows")'))
    found = load_task("mine", (tmp_path,))
    small = found.problem("7,5")
    with pytest.raises(UsageError, match=r"compute gives out the shape \(5, 7\) for 7,5") as caught:
        found.reference(small, found.inputs(small, "normal", 1, "cpu"))
    assert "(7, 7)" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "total", "by"),
    [
        ("(blockIdx.x * B + threadIdx.x) * 4u + i", "4 * B * blockIdx.x + i + 4 * threadIdx.x", "4 * B"),
        ("blockIdx.x * W + (threadIdx.x >> 5)", "W * blockIdx.x + threadIdx.x / 32", "W"),
        ("start + k * B", "2 * B * blockIdx.x + B * k", "2 * B"),
        ("blockIdx.x * (B - 2 * 3)", "B * blockIdx.x - 6 * blockIdx.x", "B - 6"),
        ("i / n + i % n", "i / n + i % n", "0"),
        ("16 / sizeof(float) * int64_t(i)", "4 * i", "0"),
        ("loop", "loop", "0"),
    ],
)
def test_an_index_is_a_sum_of_products(text: str, total: str, by: str) -> None:
    known = {"start": "blockIdx.x * TILE", "TILE": "B << 1", "loop": "loop + 1"}
    found = sum_of(text, known, ["B", "W"])
    assert found
    assert sorted(re.split(r" (?=[+-] )", "+ " + text_of(found))) in (
        sorted(re.split(r" (?=[+-] )", "+ " + total)),
        ["+ 1", "+ loop"],
    )
    assert text_of(factor_of(found, "blockIdx.x")) == by


def test_an_endless_chain_of_definitions_is_read_in_no_time() -> None:
    known = {f"v{i}": f"v{i - 1} * v{i - 1} + v{i - 1}" for i in range(1, 200)}
    assert sum_of("v199", known, [])
    assert sum_of("f(x", known, []) is None
