"""The other formats of exported folders, and how far a kernel's code reaches."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from test_export_kernels import H200, bundle, folder, run

from evo.cache import default_folder
from evo.compile import build_table_library
from evo.confirm.champions import Champion, champions, kernels_folder
from evo.confirm.choice import launch_by, template_of
from evo.device.driver import gpu_names
from evo.export import Bundle, write
from evo.export.reach import reach_of
from evo.export.sides import sides_of
from evo.gpu import Limits, target
from evo.launch.dispatch import Dispatch, arch_for, launch_of, serves
from evo.task import load_task
from evo.trial import Problem

__all__ = ["bundle", "folder"]


# ---- the other formats


def test_a_solution_of_flashinfer_bench_has_all_it_needs(bundle: Bundle, tmp_path: Path) -> None:
    write(bundle, tmp_path / "solutions", "flashinfer")
    files = sorted(path.name for path in (tmp_path / "solutions").iterdir())
    assert files == ["evo_attention.json", "evo_attention_causal_True.json"]
    solution = json.loads((tmp_path / "solutions" / files[1]).read_text())
    assert set(solution) == {"name", "definition", "author", "description", "spec", "sources"}
    assert solution["spec"]["target_hardware"] == ["NVIDIA H200"]
    paths = [source["path"] for source in solution["sources"]]
    assert len(set(paths)) == len(paths)
    for source in solution["sources"]:
        path = tmp_path / "made" / source["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source["content"])
    file, entry = solution["spec"]["entry_point"].split("::")
    assert f"def {entry}(" in (tmp_path / "made" / file).read_text()
    texts = {path.name: path.read_text() for path in (tmp_path / "made").rglob("*.b64")}
    for one in bundle.kernels:
        assert base64.b64decode(texts[f"{one.name}_sm_90a.cubin.b64"]) == one.binaries["sm_90a"].cubin
    code = f"import torch, {Path(file).stem} as m; x = torch.ones(1, 1, 4, 64).half(); "
    again = f"import sys; [sys.modules.pop(n) for n in {[Path(file).stem, *package_of(paths)]}]; "
    other = f"import {Path(file).stem} as other; assert other.{entry} is not m.{entry}; "
    assert "256" in run(tmp_path / "made", "-c", f"{code}{again}{other}print(m.{entry}(x, x, v=x).sum())")


def package_of(paths: list[str]) -> list[str]:
    """The modules of the package: a process may build two solutions, each with a copy of it."""
    modules = [path.removesuffix(".py").replace("/", ".") for path in paths if path.endswith(".py")]
    return [
        name.removesuffix(".__init__")
        for name in modules
        if "." in name and "__main__" not in name and "contract" not in name
    ]


def test_the_layout_of_hugging_face_says_its_digests(bundle: Bundle, tmp_path: Path) -> None:
    write(bundle, tmp_path / "hf", "hf", build_table_library(default_folder()))
    built = tmp_path / "hf" / "build" / "torch-cuda"
    about = json.loads((built / "metadata.json").read_text())
    assert set(about) == {"id", "name", "version", "license", "python-depends", "backend", "digest"}
    assert about["python-depends"] == []
    assert re.fullmatch("[a-z][-a-z0-9]*[a-z0-9]", about["name"])
    assert about["backend"] == {"type": "cuda", "archs": ["9.0a"]}
    files = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert set(about["digest"]["files"]) == files - {"metadata.json"}
    one = base64.b64decode(about["digest"]["files"]["dispatch.json"])
    assert one == hashlib.sha256((built / "dispatch.json").read_bytes()).digest()
    project = tomllib.loads((tmp_path / "hf" / "build.toml").read_text())
    assert project["general"].pop("edition") == 5
    assert project == {
        "general": {"name": "evo-attention", "version": 0, "license": "Apache-2.0", "backends": ["cuda"]},
        "torch-noarch": {},
    }
    assert (tmp_path / "hf" / "torch-ext" / "evo_attention" / "__init__.py").is_file()
    assert about["id"] in (built / "__init__.py").read_text()
    imported = [line.split()[1] for path in built.rglob("*.py") for line in _imports(path.read_text())]
    own = {"torch", *sys.stdlib_module_names}
    assert not [name for name in imported if not name.startswith(".") and name.split(".")[0] not in own]


def _imports(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("import ", "from "))]


MAIN = """
#include "evo_attention.h"
#include <stdio.h>
static int keys_at;
static int said(const evo_config *c, void *f, void **p, void **x) {
    (void)f, (void)x;
    printf("%u %u %u, %u threads, %u bytes, %u attributes, %d keys\\n", c->grid[0], c->grid[1], c->grid[2],
           c->block[0], c->smem_bytes, c->attributes_count, *(int *)p[keys_at]);
    return 0;
}
static int mapped(void *m, unsigned t, unsigned r, void *a, const uint64_t *n, const uint64_t *s,
                  const uint32_t *b, const uint32_t *e, unsigned i, unsigned w, unsigned l, unsigned o) {
    (void)m, (void)a, (void)e, (void)i, (void)l, (void)o;
    printf("map of %u: %u, %lu %lu, %lu, %u, %u\\n", t, r, (unsigned long)n[1], (unsigned long)n[3],
           (unsigned long)s[0], b[1], w);
    return 0;
}
int main(void) {
    evo_driver driver = {.launch = said, .encode = mapped};
    int64_t sizes[2][4] = {{2, 3, 300, 64}, {1, 2, 700, 64}};
    const char *flags[2] = {"", "causal=True"};
    const int where[2] = {WHERE};
    void *buffer[4] = {0};
    for (int at = 0; at < 2; ++at) {
        const evo_kernel *one =
            evo_find(evo_attention_kernels, evo_attention_count, 9, 0, "fp16", flags[at], sizes[at]);
        evo_loaded loaded = {one, 0};
        keys_at = where[at];
        puts(one ? one->name : "none");
        if (evo_run(&driver, &loaded, sizes[at], buffer, 0, 0)) return 1;
    }
    int64_t large[4] = {1, 8, 513, 64};
    if (evo_find(evo_attention_kernels, evo_attention_count, 9, 0, "fp16", "", large)) return 2;
    if (evo_find(evo_attention_kernels, evo_attention_count, 8, 9, "fp16", "", sizes[0])) return 3;
    return 0;
}
"""


def compiled(folder: Path, source: str, *more: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    (folder / "main.c").write_text(source)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    command = [compiler, *flags, *more, "main.c", "-o", "main", "-ldl", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "main"


def test_the_c_header_launches_as_the_template_does(bundle: Bundle, tmp_path: Path) -> None:
    """The driver is two functions that print what they get."""
    write(bundle, tmp_path / "c", "c")
    values = [[arg.get("value") for arg in one.champion.record["launch"]["args"]] for one in bundle.kernels]
    where = [one.index(length) for one, length in zip(values, (512, 1024), strict=True)]
    main = MAIN.replace("WHERE", ", ".join(map(str, where)))
    said = subprocess.run([compiled(tmp_path / "c", main)], capture_output=True, text=True, check=True).stdout
    first, second = (
        launch_of(one.reach.launch, dict(zip("BHLD", sizes, strict=True)))
        for one, sizes in zip(bundle.kernels, ((2, 3, 300, 64), (1, 2, 700, 64)), strict=True)
    )
    lines = [bundle.kernels[0].name, line_of(first, 300), bundle.kernels[1].name]
    for arg in second["args"]:
        if arg["kind"] == "tensor_map":
            shape, box = arg["shape"], arg["box"]
            lines.append(f"map of 6: {len(shape)}, {shape[1]} {shape[3]}, {arg['strides'][0]}, {box[1]}, 3")
    assert said.splitlines() == [*lines, line_of(second, 700)]


def line_of(launch: dict[str, Any], length: int) -> str:
    attributes = (launch["cluster"] != [1, 1, 1]) + bool(launch.get("cooperative"))
    grid = " ".join(map(str, launch["grid"]))
    room = f"{launch['block'][0]} threads, {launch['smem_bytes']} bytes"
    return f"{grid}, {room}, {attributes} attributes, {length} keys"


WRAPPED = """
#include "evo_attention.h"
int attend(int64_t *size, void **buffer, void *stream, int major, int minor) {
    static evo_driver driver;
    evo_loaded loaded;
    if (evo_open(&driver)) return 1;
    const evo_kernel *one =
        evo_find(evo_attention_kernels, evo_attention_count, major, minor, "fp16", "", size);
    if (!one || evo_load(&driver, one, &loaded)) return 2;
    return evo_run(&driver, &loaded, size, buffer, 0, stream);
}
"""


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_the_c_header_computes(bundle: Bundle, tmp_path: Path) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("its kernels are for sm_90a")
    write(bundle, tmp_path / "c", "c")
    library = ctypes.CDLL(str(compiled(tmp_path / "c", WRAPPED, "-shared", "-fPIC")))
    for shape in ((1, 8, 512, 64), (2, 3, 300, 64)):
        q, k, v = torch.randn(3, *shape, device="cuda", dtype=torch.float16).unbind()
        o = torch.empty_like(q)
        buffers = (ctypes.c_void_p * 4)(*(x.data_ptr() for x in (q, k, v, o)))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        assert library.attend((ctypes.c_int64 * 4)(*shape), buffers, stream, 9, 0) == 0
        torch.cuda.synchronize()
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        assert (o.double() - exact).abs().max() < 5e-3


# ---- what a kernel's code reaches


@pytest.mark.parametrize("champion", champions(kernels_folder()), ids=lambda one: one.name)
def test_launches_of_the_table_are_those_of_the_template(champion: Champion) -> None:
    limits = Limits.of(target(champion.arch))
    template = template_of(champion, limits)

    def launch_at(problem: Problem) -> Any:
        found = launch_by(template, champion, problem, limits)
        return None if isinstance(found, str) else found

    reach = reach_of(champion, load_task(champion.problem.task), launch_at)
    rng, kernel = random.Random(7), {"reach": reach.ranges}
    assert serves(kernel, champion.problem.sizes)
    tried = 0
    for _ in range(40):
        sizes = {
            name: min(high, max(low, rng.randrange(1 << rng.randint(1, 12)) // step * step))
            for name, (low, high, step) in reach.ranges.items()
        }
        due = launch_at(champion.problem.replace(**sizes))
        tried += due is not None
        assert due is not None
        assert launch_of(reach.launch, sizes) == json.loads(due.to_json())
    assert tried == 40


def test_a_cubin_runs_on_its_own_major_version() -> None:
    cubins = dict.fromkeys(("sm_80", "sm_86", "sm_90", "sm_90a"), "")
    at = {(8, 0): "sm_80", (8, 9): "sm_86", (9, 0): "sm_90a", (7, 5): "", (10, 0): "", (8, 6): "sm_86"}
    assert {capability: arch_for(cubins, capability) for capability in at} == at
    assert arch_for({"sm_90a": ""}, (9, 1)) == ""


def test_a_grid_that_no_gpu_has_is_refused(folder: Path) -> None:
    dispatch = Dispatch(folder / "evo_attention")
    sizes = {"B": 9000, "H": 8, "L": 128, "D": 64}
    assert "a grid of [2, 72000, 2]" in dispatch.decide(H200, "fp16", {"causal": False}, sizes).why


def test_a_side_is_a_size_a_number_or_a_formula() -> None:
    sides = sides_of(load_task("gemm_w4a16"), {"zeros": True})
    assert sides["x"] == ["M", "K"]
    assert sides["w4"] == ["N", {"times": 1, "of": [["K", 2]]}]
    assert sides["weight_tiles"] == [
        {"times": 1, "of": [["N", 16]]}, {"times": 1, "of": [["K", 128]]}, 2, 32, 4,
    ]  # fmt: skip
    wide = {"times": 1, "of": [["columns", 1]], "plus": 8}
    assert sides_of(load_task("softmax"), {"log": False, "gap": 8}) == {
        "x": ["rows", wide],
        "y": ["rows", "columns"],
    }


def test_a_folder_says_what_problems_lose_that_its_table_does_not_know(tmp_path: Path) -> None:
    sizes, flags = {"n": 8}, {"causal": False}
    kernel = {"name": "k", "cubins": {"sm_90a": ""}, "reach": {"n": [1, 64, 1]}, "median_us": None, "gpu": ""}
    row = {"gpu": H200.name, "problem": {"sizes": sizes, "flags": flags, "dtype": "fp16"}, "kernel": "k"}
    record = {
        "forms": [{"flags": flags, "buffers": []}],
        "kernels": [{**kernel, "launch": {"grid": [1, 1, 1], "args": [], "workspaces": []}}],
        "decisions": [{**row, "left_out_regret": 1.25}],
    }
    (tmp_path / "dispatch.json").write_text(json.dumps(record))
    dispatch = Dispatch(tmp_path)
    assert "made for this very problem" in dispatch.decide(H200, "fp16", flags, sizes).why
    far = dispatch.decide(H200, "fp16", flags, {"n": 16}).why
    lost = "where a portfolio did not know that problem, it took 1.25x of the best"
    assert far == f"the nearest, 1.0 doublings away; {lost}"
    assert "its code is made for n=1..64" in dispatch.decide(H200, "fp16", flags, {"n": 65}).why
