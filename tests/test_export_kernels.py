"""Exported Python folders: they run, and pip installs them, without evo and without a compiler."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kept import confirmed_us

from evo.cache import Cache, default_folder
from evo.compile import build_table_library, find_compiler
from evo.confirm.champions import Champion, champions, kernels_folder
from evo.confirm.portfolio import rows_of
from evo.device.driver import gpu_names
from evo.errors import MachineError, NothingFound, UsageError
from evo.export import Bundle, bundle_of, write
from evo.launch.contract import cases, check
from evo.launch.dispatch import Place
from evo.launch.packaged import PackagedKernel
from evo.task import load_task

GPU_NAMES = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Environment that a driver may need."""
H200 = Place("NVIDIA H200", (9, 0))
TASK = load_task("attention")
CHOSEN = ("sm_90a/b1_h8_l512_d64_fp16", "sm_90a/b1_h8_l1024_d64_causal_fp16")
"""One that copies by threads and serves up to 512 keys, and one with tensor maps."""
OWN_US = confirmed_us(f"attention/{CHOSEN[0]}")


def named(*names: str) -> list[Champion]:
    known = {one.name: one for one in champions(kernels_folder())}
    return [known[f"attention/{name}"] for name in names]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    chosen = named(*CHOSEN)
    try:
        compiler = find_compiler(None, Cache(default_folder()), parts=("cubin",))
    except MachineError as error:
        pytest.skip(str(error))
    with compiler:
        return bundle_of(TASK, chosen, rows_of(chosen), compiler)


@pytest.fixture(scope="module")
def folder(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported") / "attention"
    write(bundle, made, "python", build_table_library(default_folder()))
    return made


@pytest.fixture(scope="module", params=["its own files", "those of evo"])
def package(folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The package in this process: by the runtime that it has a copy of, and by the original."""
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(folder)
        made = importlib.import_module("evo_attention")
        if request.param == "its own files":
            yield made
        else:
            fallback = importlib.import_module("evo_attention.fallback").fallback
            own = PackagedKernel(folder / "evo_attention", "evo_attention_by_evo", fallback)
            yield SimpleNamespace(attention=own)


def qkv(*shape: int) -> list[torch.Tensor]:
    return [torch.randn(shape, generator=torch.Generator().manual_seed(n)).half() for n in range(3)]


def run(folder: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=own,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- the package


def test_it_runs_where_there_is_no_evo(folder: Path) -> None:
    blocked = "import sys; sys.modules['evo'] = None; import runpy; sys.argv[1:] = ['check']; "
    said = run(folder, "-c", blocked + "runpy.run_module('evo_attention', run_name='__main__')")
    assert "attention: 2 kernels, else torch.nn.functional.scaled_dot_product_attention" in said
    assert f"NVIDIA H200: B=1 H=8 L=512 D=64 fp16: sm_90a_b1_h8_l512_d64_fp16 ({OWN_US})" in said
    assert said.count("right on attention ") == 4
    assert ("NVIDIA's driver and one of sm_90a" in said) == (not torch.cuda.is_available())
    sources = [path.read_text() for path in folder.rglob("*.py")]
    assert not [text for text in sources if "from evo" in text.replace("from evo_attention", "")]


@pytest.mark.slow
def test_pip_installs_it_into_an_environment_without_evo(folder: Path, tmp_path: Path) -> None:
    assert " passed" in run_in_an_environment_without_evo(folder, tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_it_keeps_the_contract_in_an_environment_without_evo(folder: Path, tmp_path: Path) -> None:
    said = run_in_an_environment_without_evo(folder, tmp_path)
    assert " passed" in said
    assert "skipped" not in said or torch.cuda.get_device_capability() != (9, 0)


def run_in_an_environment_without_evo(folder: Path, tmp_path: Path) -> str:
    """What the tests of the package say there, where there is no nvcc on the path either. torch and pytest
    are borrowed from this environment, by a .pth file: what evo itself is installed by does not come along.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    borrowed = {str(Path(torch.__file__).parents[1]), str(Path(pytest.__file__).parents[1])}
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    copy = shutil.copytree(folder, tmp_path / "copy")
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "nvcc").exists())
    clean = {"PATH": path, "HOME": str(tmp_path), **{n: v for n, v in os.environ.items() if n in GPU_NAMES}}
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-build-isolation", str(copy)], capture_output=True, text=True, check=False, env=clean
    )
    assert done.returncode == 0, done.stderr

    def told(*words: str) -> str:
        return subprocess.run(
            [python, *words], cwd=tmp_path, capture_output=True, text=True, check=True, env=clean
        ).stdout

    assert told("-c", "import evo_attention as a; print(a.__file__)").startswith(str(site))
    with pytest.raises(subprocess.CalledProcessError):
        told("-c", "import evo.version")
    return told("-m", "pytest", "-q", "-p", "no:cacheprovider", str(copy / "tests"))


def test_a_call_is_the_fallbacks_without_a_gpu(package: Any, caplog: pytest.LogCaptureFixture) -> None:
    q, k, v = qkv(2, 3, 40, 64)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(package.attention(q, k=k, v=v, causal=True), expected)
    out = torch.empty_like(q)
    assert package.attention(q, k, v, out=out, causal=True) is out
    assert torch.equal(out, expected)
    assert caplog.text.count("the tensors lie on cpu") == 1
    q.requires_grad_()
    package.attention(q, k, v).sum().backward()
    assert q.grad is not None
    assert repr(package.attention).startswith("<attention: 2 kernels, else torch.nn")


def test_its_cases_are_right_and_wrong_answers_are_told(folder: Path, package: Any) -> None:
    first, *others = cases(folder / "evo_attention")
    assert len(others) == 3
    for case in (first, *others):
        assert check(package.attention, case, "cpu").endswith("the tensors lie on cpu")
    (said,) = first["expected"].values()
    said["values"][0, 0, 0, 0] += 1.0
    with pytest.raises(AssertionError, match=r"o is off by .* \(limits .*\), by torch"):
        check(package.attention, first, "cpu")


def test_it_tells_what_would_serve(package: Any) -> None:
    own, near, far = qkv(1, 8, 512, 64), qkv(3, 5, 300, 64), qkv(1, 8, 1024, 64)
    told = package.attention.explain(*own, place=H200)
    assert told.startswith(f"sm_90a_b1_h8_l512_d64_fp16 (sm_90a): made for this very problem; {OWN_US}")
    assert "the nearest, 3.0 doublings away" in package.attention.explain(*near, place=H200)
    assert "its code is made for B=1..131072 H=1..131072 L=1..512 D=64" in package.attention.explain(
        *far, place=H200
    )
    other = package.attention.explain(*far, causal=True, place=Place("NVIDIA H100 PCIe", (9, 0)))
    assert "chosen for NVIDIA H200, and this is NVIDIA H100 PCIe" in other
    assert "it is compiled for sm_90a" in package.attention.explain(*own, place=Place("NVIDIA L4", (8, 9)))
    assert "no kernel is for bf16" in package.attention.explain(*(x.bfloat16() for x in own), place=H200)
    strided = own[0].transpose(1, 2).contiguous().transpose(1, 2)
    assert "q is not contiguous" in package.attention.explain(strided, *own[1:], place=H200)


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        (
            {"k": torch.ones(1, 2, 8, 64)},
            ValueError,
            "attention takes fp16 or bf16, and q is of",
        ),
        ({"q": None}, TypeError, "q is a NoneType"),
        ({"v": torch.ones(1, 2, 9, 64).half()}, ValueError, "L is 8 elsewhere"),
        ({"v": torch.ones(2, 8, 64).half()}, ValueError, "v has 3 dimensions"),
        ({"v": torch.ones(1, 2, 8, 64, device="meta").half()}, ValueError, "tensors lie on cpu, meta"),
        ({"causal": "maybe"}, ValueError, "causal cannot be maybe"),
        ({"mask": True}, TypeError, "attention has no mask"),
        ({"window": torch.ones(1)}, TypeError, "there is no window"),
        ({"out": torch.ones(1, 2, 8, 64)}, ValueError, "it is .* of torch.float16"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_call_is_an_error(
    package: Any, changed: dict[str, Any], error: type[Exception], said: str
) -> None:
    q, k, v = qkv(1, 2, 8, 64)
    with pytest.raises(error, match=said):
        package.attention(**({"q": q, "k": k, "v": v} | changed))
    with pytest.raises(ValueError, match="shares memory"):
        package.attention(q, k, v, out=q)
    with pytest.raises(ValueError, match="is empty"):
        package.attention(q[:, :, :0], k[:, :, :0], v[:, :, :0])


@pytest.mark.slow
def test_torch_compiles_it_as_one_node(package: Any) -> None:
    torch._dynamo.reset()
    run_ = torch.compile(
        lambda q, k, v: package.attention(q + 1, k, v, causal=True) * 2,
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    for batch in (2, 3):
        given = [x.requires_grad_() for x in qkv(batch, 2, 16, 64)]
        q, k, v = given
        due = torch.nn.functional.scaled_dot_product_attention(q + 1, k, v, is_causal=True) * 2
        found = run_(q, k, v)
        assert torch.equal(found, due)
        for one, other in zip(
            torch.autograd.grad(found.sum(), given), torch.autograd.grad(due.sum(), given), strict=True
        ):
            assert torch.allclose(one, other, atol=1e-2)


@pytest.mark.slow
def test_torch_finds_no_fault_with_its_operators(package: Any) -> None:
    operator = package.attention._operators._of[(True,)]
    torch.library.opcheck(operator, tuple(qkv(1, 2, 16, 64)))


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_names(), reason="there is no NVIDIA GPU here")
def test_on_a_gpu_its_kernels_keep_the_contract(folder: Path, package: Any) -> None:
    said = run(folder, "-m", "evo_attention", "check")
    served = "made for this very problem" in said or "doublings away" in said
    assert served == (torch.cuda.get_device_capability() == (9, 0))
    if served:
        q, k, v = (x.cuda() for x in qkv(1, 8, 512, 64))
        first = package.attention(q, k, v)
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        assert (first.double() - exact).abs().max() < 5e-3
        assert torch.equal(package.attention(q, k, v), first), "by the compiled table"
        assert package.attention._table.size() == 1


# ---- the command


def test_the_command_writes_a_folder_and_says_what_serves(evo: Any, tmp_path: Path) -> None:
    name = f"attention/{CHOSEN[0]}"
    said = evo("export", name, "--to", "made", "--format", "c", "--cache", str(default_folder()))
    assert said.code == 0, said.err
    assert said.out.strip() == "made"
    assert said.err.startswith(f"attention B=1 H=8 L=512 D=64 causal=0 fp16 on NVIDIA H200: {name}")
    assert (tmp_path / "made" / "evo_attention.h").is_file()
    for words, why in (
        ((name, "--to", "made"), "made is not empty"),
        ((name, "--to", "other", "--format", "zip"), "unknown format: zip"),
        ((name,), "nothing says where to write the export"),
        (("nothing", "--to", "other"), "there is no task, folder, champion or study nothing"),
        (("cross_entropy", "--to", "other"), "cross_entropy has no champion"),
        ((name, "--to", "other", "--times", "t.json"), "--times is used with --most alone"),
    ):
        assert why in evo("export", *words, "--cache", str(default_folder())).err
    assert not (tmp_path / "other").exists()


def test_a_bundle_of_nothing_or_of_two_files_of_one_name_is_refused(bundle: Bundle) -> None:
    with pytest.raises(NothingFound, match="there is no kernel of attention to export"):
        bundle_of(TASK, [], [], None)  # type: ignore[arg-type]
    with find_compiler(None, Cache(default_folder()), parts=("cubin",)) as compiler:
        twice = [bundle.kernels[0].champion] * 2
        with pytest.raises(UsageError, match="two kernels are called sm_90a_b1_h8_l512_d64_fp16"):
            bundle_of(TASK, twice, [], compiler)
