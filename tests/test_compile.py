"""The compiler: NVRTC and nvcc answer alike, the cache keeps it, failures have short reasons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from evo.cache import Cache
from evo.compile import Compiler, Part, find_compiler, toolkits
from evo.errors import MachineError, Uncompilable
from evo.trial import Binary

KERNEL = """// a comment {comment}
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
constexpr int kScale = {scale};
extern "C" __global__ void __launch_bounds__(128) scale(const __half* x, __half* y, int n) {{
  __shared__ float tile[128];
  int i = blockIdx.x * 128 + threadIdx.x;
  tile[threadIdx.x] = i < n ? __half2float(x[i]) : 0.f;
  __syncthreads();
  if (i < n) y[i] = __float2half(tile[threadIdx.x ^ 1] * kScale);
}}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spill(const float* x, float* y, int n) {
  float state[96];
  for (int i = 0; i < 96; i++) state[i] = x[i * 1024 + threadIdx.x];
  for (int step = 0; step < n; step++) {
#pragma unroll
    for (int i = 0; i < 96; i++) state[i] = state[i] * state[(i * 7 + 1) % 96] + 1.f;
  }
#pragma unroll
  for (int i = 0; i < 96; i++) y[i * 1024 + threadIdx.x] = state[i];
}
"""
SLOW_TO_COMPILE = (
    "#define A0 s = s * x[s & 7] + 1;\n"
    + "".join(f"#define A{n + 1} " + f"A{n} " * 10 + "\n" for n in range(5))
    + 'extern "C" __global__ void slow(unsigned* x) { unsigned s = 1; A5 x[0] = s; }\n'
)
"""100,000 dependent loads."""


def source(scale: int = 2, comment: str = "") -> str:
    return KERNEL.format(scale=scale, comment=comment)


@pytest.fixture(scope="module")
def started() -> Iterator[dict[str, Compiler]]:
    """The compilers that have been started, by tool: a start takes as long as a test."""
    found: dict[str, Compiler] = {}
    yield found
    for compiler in found.values():
        compiler.close()


@pytest.fixture(params=["nvrtc", "nvcc"])
def compiler(request: pytest.FixtureRequest, started: dict[str, Compiler], tmp_path: Path) -> Compiler:
    """Either tool, with an empty cache."""
    tool, cache = request.param, Cache(tmp_path / "cache")
    if tool not in started:
        kits = [kit for kit in toolkits() if getattr(kit, tool)]
        if not kits:
            pytest.skip(f"there is no {tool} here")
        started[tool] = Compiler(kits[0], tool, cache)
    started[tool].cache = cache
    return started[tool]


pytestmark = pytest.mark.nvcc

either_will_do = pytest.mark.parametrize("compiler", ["nvrtc"], indirect=True)
"""For what is done with a compiler's answer, whichever gave it."""


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_120"])
def test_a_binary_has_cubin_ptx_and_resources(compiler: Compiler, arch: str) -> None:
    binary = compiler.compile(source(), "scale", arch)
    assert binary.cubin[:4] == b"\x7fELF"
    assert f".target {arch}" in binary.ptx
    assert ".entry scale(" in binary.ptx
    assert ".loc" in binary.ptx  # source lines for whoever reads the PTX
    assert "candidate.cu" in binary.ptx
    assert '.file\t1 "candidate.cu"' in binary.ptx  # and not where somebody happened to compile it
    assert 8 <= binary.resources.registers <= 64
    assert binary.resources.static_smem_bytes in (512, 512 + 1024)  # sm_90 and up may count the reserved 1 KB
    assert binary.resources.spill_bytes == 0
    assert binary.compiler == compiler.version
    assert compiler.version.startswith(f"{compiler.tool} {compiler.release[0]}.")


def test_spills_and_stack_are_reported(compiler: Compiler) -> None:
    resources = compiler.compile(SPILLING, "spill", "sm_80").resources
    assert resources.registers == 32
    assert resources.spill_bytes > 0
    assert resources.stack_bytes > 0


def test_ptxas_advice_is_kept(compiler: Compiler) -> None:
    ignored = 'asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");'
    text = f'extern "C" __global__ void k(float* x) {{ {ignored} x[0] = 1; }}'
    warnings = compiler.compile(text, "k", "sm_90a").resources.warnings
    assert any(warning.startswith("(C7508)") and "setmaxnreg" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        (
            'extern "C" __global__ void k() {\n  foo();\n}',
            'compiler error: identifier "foo" is undefined',
            "(2)",
        ),
        (
            'static_assert(sizeof(int) == 8, "smem model and SharedStorage disagree");\n'
            'extern "C" __global__ void k() {}',
            "static_assert: smem model and SharedStorage disagree",
            "(1)",
        ),
        (
            'extern "C" __global__ void k(float* p) { __shared__ float s[20000]; s[threadIdx.x] = p[0];'
            " __syncthreads(); p[1] = s[5]; }",
            "static shared memory limit",
            "0xc000 max",
        ),
        (
            'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }',
            "instruction not in this architecture",
            "wgmma.fence",
        ),
        ('extern "C" __global__ void other() {}', "no entry point", "other"),
        ("__global__ void k(float*) {}", "no entry point", '_Z1kPf; it needs extern "C" before __global__'),
        ("namespace a { __global__ void k() {} }", "no entry point", 'it needs extern "C"'),
        ("", "no entry point", "k"),
        (
            'extern "C" __global__ void k() { asm volatile("blah.f32 %r17;"); }',
            "ptxas error: Not a name of any known instruction: 'blah'",
            "blah",
        ),
    ],
)
def test_a_failure_has_a_countable_reason(compiler: Compiler, text: str, reason: str, detail: str) -> None:
    with pytest.raises(Uncompilable) as caught:
        compiler.compile(text, "k", "sm_89")
    assert caught.value.reason == reason
    assert detail in caught.value.detail
    assert "\0" not in caught.value.detail
    assert not list(compiler.cache.root.glob("??/*"))  # a failure leaves nothing behind


def test_a_missing_header_is_named(compiler: Compiler) -> None:
    with pytest.raises(Uncompilable, match=r"nope\.h"):
        compiler.compile("#include <nope.h>\n", "k", "sm_89")


def test_machine_code_ignores_what_changes_nothing(compiler: Compiler) -> None:
    one = compiler.compile(source(), "scale", "sm_89")
    same = compiler.compile(source(comment="on one line\n// and more lines\n\n"), "scale", "sm_89")
    other = compiler.compile(source(scale=3), "scale", "sm_89")
    assert one.machine_code == same.machine_code
    assert one.machine_code != other.machine_code


@either_will_do
@pytest.mark.parametrize("kind", ["__constant__ float", "__device__ const float"])
def test_machine_code_sees_tables_that_are_read(compiler: Compiler, kind: str) -> None:
    kernel = ' extern "C" __global__ void k(float* x, int i) { x[0] = w[i]; }'
    texts = [f"{kind} w[4] = {{1, 2, 3, {last}}};{kernel}" for last in (4, 5)]
    codes = {compiler.compile(text, "k", "sm_89").machine_code for text in texts}
    assert len(codes) == 2


@either_will_do
def test_machine_code_ignores_constants_that_nobody_reads(compiler: Compiler) -> None:
    kernel = ' extern "C" __global__ void k(float* x) { x[0] = 1; }'
    texts = [f"constexpr int kDead = {value}; __constant__ int w = {value};{kernel}" for value in (4, 5)]
    assert len({compiler.compile(text, "k", "sm_89").machine_code for text in texts}) == 1


@either_will_do
def test_the_second_time_comes_from_the_cache(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiler.compile(source(), "scale", "sm_89")
    with monkeypatch.context() as none:
        none.setattr(compiler, "_backend", None)
        again = compiler.compile(source(), "scale", "sm_89")
    assert again == first
    assert compiler.compile(source(), "scale", "sm_80") != first


def test_another_problem_is_not_another_program(compiler: Compiler) -> None:
    """A template's sources for two problems may differ in what they say of themselves alone."""
    told = "// evo 0 template scale/scale\n// problem {}\n// point {{}}\n\n"
    keys = {
        compiler.key(told.format(problem) + source(), "scale", "sm_89")
        for problem in ("scale N=1", "scale N=16384")
    }
    assert len(keys) == 1
    assert compiler.key("// anything\n// else\n// there\n\n" + source(), "scale", "sm_89") not in keys


@either_will_do
@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_entry_is_built_again(compiler: Compiler, damage: bytes | None) -> None:
    first = compiler.compile(source(), "scale", "sm_89")
    (entry,) = compiler.cache.root.glob("??/*.entry")
    if damage is None:  # one flipped bit in the middle
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 4
        damage = bytes(content)
    entry.write_bytes(damage)
    again = compiler.compile(source(), "scale", "sm_89")
    assert again.machine_code == first.machine_code
    assert compiler.compile(source(), "scale", "sm_89").seconds == again.seconds  # kept this time


@either_will_do
def test_an_entry_without_its_file_is_built_again(compiler: Compiler) -> None:
    compiler.compile(source(), "scale", "sm_89")
    (entry,) = compiler.cache.root.glob("??/*.entry")
    entry.unlink()
    compiler.compile(source(), "scale", "sm_89")
    assert entry.is_file()


def test_a_search_keeps_what_its_device_runs_and_lines_where_somebody_reads_them(compiler: Compiler) -> None:
    whole, cache = compiler.compile(source(), "scale", "sm_89"), compiler.cache
    sizes = [sum(entry.stat().st_size for entry in cache.root.glob("??/*.entry"))]

    def having(*parts: Part) -> Compiler:
        return Compiler(compiler.toolkit, compiler.tool, cache, parts=parts, version=compiler.version)

    with having("cubin") as of_gpu, having("ptx") as of_emulator:
        for needy in (of_gpu, of_emulator):
            built = needy.compile(source(), "scale", "sm_89")
            sizes.append(sum(entry.stat().st_size for entry in cache.root.glob("??/*.entry")) - sum(sizes))
            assert needy.compile(source(), "scale", "sm_89") == built
            assert built.machine_code == whole.machine_code  # the same instructions, with lines or without
            assert built.resources == whole.resources
            assert bool(built.cubin) == (needy is of_gpu)
            assert (".loc" in built.ptx) == (needy is of_emulator)
    both, cubin, ptx = sizes
    assert max(cubin, ptx) < 0.7 * both < 5_000
    assert b".debug_line" in whole.cubin


def test_a_batch_keeps_order_and_failures(compiler: Compiler) -> None:
    requests = [(source(scale), "scale", "sm_89") for scale in (2, 3, 2)] + [("nonsense", "k", "sm_89")]
    compiler.compile(*requests[1])
    two, three, same, failed = compiler.compile_many(requests, jobs=2)
    assert isinstance(two, Binary)
    assert isinstance(three, Binary)
    assert two == same
    assert two.machine_code != three.machine_code
    assert two.seconds > 0.01
    assert isinstance(failed, Uncompilable)
    assert failed.reason.startswith("compiler error")
    assert compiler.compile_many([], jobs=2) == []


def test_a_pathological_source_times_out(
    compiler: Compiler, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path_factory.mktemp("scratch of a test")
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    kit, tool, version = compiler.toolkit, compiler.tool, compiler.version
    with Compiler(kit, tool, compiler.cache, timeout_s=1.0, version=version) as hasty:
        begin = time.perf_counter()
        with pytest.raises(Uncompilable, match="compile timeout") as caught:
            hasty.compile(SLOW_TO_COMPILE, "slow", "sm_89")
        assert ("1 s of CPU time" in caught.value.detail) == (tool == "nvrtc")
        (in_batch,) = hasty.compile_many([(SLOW_TO_COMPILE, "slow", "sm_89")], jobs=1)
        assert isinstance(in_batch, Uncompilable)
        assert in_batch.reason == "compile timeout"
        assert not list(scratch.iterdir()), "what a killed compiler left"
        assert time.perf_counter() - begin < 200, "each is given 1 s; a crowded machine may take longer"
        hasty.timeout_s = 300.0
        assert hasty.compile(source(), "scale", "sm_89").ptx  # and it goes on


def test_waiting_for_a_core_is_not_the_fault_of_a_source(tmp_path: Path) -> None:
    kits = [kit for kit in toolkits() if kit.nvrtc]
    if not kits:
        pytest.skip("there is no NVRTC here")
    before = psutil.Process().children()
    with Compiler(kits[0], "nvrtc", Cache(tmp_path), timeout_s=60.0, background=True) as compiler:
        (child,) = set(psutil.Process().children()) - set(before)
        others_end: threading.Timer | None = None
        if os.sched_getscheduler(child.pid) == os.SCHED_IDLE:  # this machine may be crowded already
            compiler.timeout_s = 6.0
            child.suspend()  # as if others had all cores
            others_end = threading.Timer(7.0, child.resume)
            others_end.start()
        assert compiler.compile(source(), "scale", "sm_89").ptx
        if others_end:
            others_end.cancel()  # the process that it would wake may have been replaced
        assert compiler.compile(source(7), "scale", "sm_89").ptx
        (child,) = set(psutil.Process().children()) - set(before)
        assert os.sched_getscheduler(child.pid) == os.SCHED_OTHER


def test_a_compiler_that_dies_is_an_uncompilable_candidate(tmp_path: Path) -> None:
    kits = [kit for kit in toolkits() if kit.nvrtc]
    if not kits:
        pytest.skip("there is no NVRTC here")
    before = psutil.Process().children()
    with Compiler(kits[0], "nvrtc", Cache(tmp_path)) as compiler:
        (child,) = set(psutil.Process().children()) - set(before)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert compiler.compile(source(), "scale", "sm_89").ptx  # an idle one that died is replaced
        (child,) = set(psutil.Process().children()) - set(before)
        threading.Timer(0.5, child.kill).start()  # as if the source had made it crash
        with pytest.raises(Uncompilable) as caught:
            compiler.compile(SLOW_TO_COMPILE, "slow", "sm_89")
        assert caught.value.reason == "compiler crashed"
        assert compiler.compile(source(7), "scale", "sm_89").ptx


def test_no_process_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    if not any(kit.nvrtc for kit in toolkits()):
        pytest.skip("there is no NVRTC here")
    program = f"""
import pathlib, psutil, time
from evo.cache import Cache
from evo.compile import find_compiler
compiler = find_compiler(None, Cache(pathlib.Path({str(tmp_path)!r})))
print(psutil.Process().children()[0].pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the compiler's process outlives its parent"
        time.sleep(0.05)


def test_the_wheels_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(kit.origin == "wheels" and kit.nvcc for kit in toolkits()):
        pytest.skip("NVIDIA's compiler wheels are not installed")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert not shutil.which("nvcc")
    with find_compiler(None, Cache(tmp_path)) as compiler:
        assert compiler.toolkit.origin == "wheels"
        assert compiler.compile(source(), "scale", "sm_90a").ptx
        with Compiler(compiler.toolkit, "nvcc", Cache(tmp_path / "nvcc")) as plain:
            assert plain.compile(source(), "scale", "sm_90a").ptx


def test_the_compiler_asked_for_is_taken(tmp_path: Path) -> None:
    kits = [kit for kit in toolkits() if kit.nvcc]
    if not kits:
        pytest.skip("there is no nvcc here")
    assert kits[0].nvcc
    link = tmp_path / "elsewhere" / "nvcc"
    link.parent.mkdir()
    link.symlink_to(kits[0].root / "bin" / "nvcc")  # itself, though a script on PATH may stand for it
    with find_compiler(link, Cache(tmp_path)) as compiler:
        assert compiler.toolkit.origin == "--nvcc"
        assert compiler.toolkit.root == kits[0].root
        with Compiler(compiler.toolkit, "nvcc", Cache(tmp_path / "nvcc")) as plain:
            assert plain.compile(source(), "scale", "sm_90a").ptx
    with find_compiler(kits[0].root, Cache(tmp_path)) as compiler:  # a CUDA_HOME
        assert compiler.toolkit.root == kits[0].root


def test_no_compiler_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no CUDA compiler at") as caught:
        find_compiler(tmp_path / "nvcc", Cache(tmp_path))
    assert caught.value.hint
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(MachineError, match="does not work"):
        find_compiler(broken, Cache(tmp_path))


@either_will_do
def test_a_cache_that_cannot_be_written(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    compiler.cache = Cache(tmp_path / "file" / "cache")
    with pytest.raises(MachineError, match="cannot write to the cache"):
        compiler.compile(source(), "scale", "sm_89")
