"""What lives on between launches: variables that the code of a module may write, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evo.cache import Cache, default_folder
from evo.compile import Compiler, find_compiler, module_state
from evo.compile.state import PARAMETERS
from evo.errors import MachineError

WRITTEN = """
typedef unsigned long long Word;
template <int N> __device__ int kept_by_template;
static __device__ int kept_static, kept_atomic, kept_alias, kept_by_pointer, kept_in_local, kept_far;
__managed__ int kept_managed;
__device__ int* points_at_kept[2] = {&kept_by_pointer, &kept_by_pointer};
__constant__ int kept_constant[4] = {1, 2, 3, 4};
extern "C" { __device__ int __func__1, __nv_kept, __cudart_kept, _ZTV4Kept; }
__device__ unsigned char kept_bytes[8];
__device__ __noinline__ void add(int* at, int n) { *at += n; }
extern "C" __global__ void k(int* out, Word* where, int n, const __grid_constant__ int4 whole) {
  static int kept_local;
  __shared__ Word slot;
  kept_by_template<3> = n;
  kept_static++, kept_managed++, kept_local++, __func__1++, __nv_kept++, __cudart_kept++;
  _ZTV4Kept += n;
  atomicAdd(&kept_atomic, 1);
  *(int*)((Word)&kept_alias ^ 16 ^ 16) = n;
  *points_at_kept[n & 1] = 4;
  int* several[4] = {out, &kept_in_local, out, out};
  several[n & 3][0] = 3;
  add(&kept_far, n);
  asm volatile("{ .reg .u64 a; cvta.const.u64 a, kept_constant; st.u32 [a], %0; }" ::"r"(n));
  asm volatile("st.global.u8[kept_bytes+1],%0;" ::"r"(n));
  slot = (Word)kept_bytes;
  where[0] = slot;
  out[0] = kept_local + ((const char*)__func__)[n & 1] + kept_constant[n & 3] + whole.x;
}
"""
READ = """
#include <cuda_fp16.h>
typedef float (*Function)(float);
__device__ float __noinline__ twice(float x) { return 2 * x; }
__device__ float __noinline__ half_of(float x) { return x / 2; }
__device__ Function functions[2] = {twice, half_of};
__device__ const float table[4] = {1, 2, 3, 4};
__device__ const float* tables[2] = {table, table + 1};
__constant__ float constants[4] = {1, 2, 3, 5};
__device__ float __noinline__ from(const float* t, int i) { return t[i & 3]; }
struct Base { __device__ virtual float of(float x) { return x; } };
struct Derived : Base { __device__ float of(float x) override { return x * 3; } };
extern "C" __global__ void k(float* out, const float* x, int n, const __grid_constant__ int4 whole) {
  static const float local[4] = {5, 6, 7, 8};
  float s, c, a = x[threadIdx.x];
  sincosf(a, &s, &c);
  s += c + sinf(3 * a) + cosf(a) + tanf(a) + powf(a, 1.7f) + lgammaf(a) + (float)sin((double)a);
  s += (float)exp((double)a) + (float)pow((double)a, 1.5) + erff(a) + sinpif(a) + cbrtf(a);
  s += table[n & 3] + from(constants, n) + from(table, n) + tables[n & 1][1] + local[n & 3];
  s += functions[n & 1](s) + (&whole.x)[n & 3];
  Derived derived;
  Base base, *one = n & 2 ? &base : &derived;
  s += one->of(s);
  assert(n != 77);
  if (n == 12345) printf("%s %d %s\\n", __func__, n, "text");
  out[threadIdx.x] = s;
}
"""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        found = find_compiler(None, Cache(default_folder()))
    except MachineError as none:
        pytest.skip(none.message)
    with found:
        yield found


def test_what_stands_before_a_declaration_does_not_hide_it() -> None:
    """A parameter that points to global memory, another statement, qualifiers, comments and line numbers."""
    head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    entry = ".visible .entry k(.param .u64 .ptr .global .align 16 p) {"
    store = "st.global.u32 [kept], 1; ret; }\n"
    for declared in (
        f"{entry} .global .u32 kept; {store}",
        f".visible\n  .global .u32 kept;\n{entry} {store}",
        f"/* .loc */ .weak // of all\n .extern .global .align 4 .u32 kept;\n{entry}\n\t.loc\t1 2 3\n{store}",
        f"{entry}\n\t// begin inline asm\n .global .u32 kept;\n\t// end inline asm\n{store}",
    ):
        assert module_state(head + declared) == ("kept",), declared
    assert module_state(f"{head}// .global .u32 kept;\n{entry} ld.global.u32 %r1, [p]; ret; }}\n") == ()


@pytest.mark.nvcc
def test_every_way_to_keep_something_is_seen(compiler: Compiler) -> None:
    written = compiler.compile(WRITTEN, "k", "sm_90a").state
    kept = [name for name in written if "ept" in name or name == "__func__1"]
    assert list(written) == kept, "and nothing else"
    assert len(written) == 15, written


@pytest.mark.nvcc
def test_what_is_only_read_is_no_state(compiler: Compiler) -> None:
    binary = compiler.compile(READ, "k", "sm_90a")
    assert "__cudart_i2opi_f" in binary.ptx
    assert binary.state == ()


def kernel(body: str, declared: str = "") -> str:
    return (
        f".version 9.0\n.target sm_90a\n.address_size 64\n{declared}\n.global .align 4 .b8 $str[16];\n"
        ".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .align 64 .b8 k_param_1[128]\n)\n{\n"
        f"\t.reg .b64 %rd<9>;\n{body}\n\tret;\n}}\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "st.global.u32 [$str+4], 1;",
        "st .global .u32[$str+4],1;",
        "@!%p1 bra $L; mov.u64 %rd1, $str;\n$L: st.global.u32 [%rd1], 1;",
        "{ .reg .b64 here; mov.b64 here, $str; add.s64 here, here, %rd3; red.global.add.u32 [here], 1; }",
        'mov.u64 %rd1, $str; .pragma "/*"; st.global.u32 [%rd1], 1; .pragma "*/";',
        "mov.u64 %rd1, $str;\n\t.loc 1 5 3 st.global.u32 [%rd1], 1;",
        "mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd2, {%r1, %r2}; st.u32 [%rd2], 1; mov.u64 %rd1, $str;",
        "mov.u64 %rd1, $str; shfl.sync.idx.b32 %r1|%p1, %rd1, 0, 31, -1; st.u32 [%r1], 1;",
        "mov.u64 %rd1, $str; st.shared.u64 [%rd5], %rd1;",
        "mov.u64 %rd1, $str; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;",
        "mov.u64 %rd1, $str; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r3], 16;",
        "mov.u64 %rd1, $str; discard.global.L2 [%rd1], 128;",
        "mov.u64 %rd1, $str; call.uni f, (%rd1);",
        "mov.u64 %rd1, $str; { .param .b64 param0; st.param.b64 [param0], %rd1; call.uni f, (param0); }",
        "mov.u64 %rd1, $str; atom.global.exch.b64 %rd2, [%rd3], %rd1;",
        ".local .b64 depot; mov.u64 %rd1, $str; st.local.u64 [depot], %rd1; ld.local.u64 %rd2, [depot];"
        " st.global.u32 [%rd2], 1;",
        "mov.u64 %rd1, $str; { .param .b64 p; st.param.b64 [p], %rd1; call.uni vprintf, (p); }",
    ],
)
def test_an_address_is_followed_wherever_it_goes(body: str) -> None:
    fake = ".func vprintf(.param .b64 f)\n{\n ld.param.u64 %rd1, [f]; st.u32 [%rd1], 1;\n ret;\n}\n"
    assert module_state(kernel(body, fake if "vprintf" in body else "")) == ("$str",)


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r1, [$str]; st.global.u32 [%rd3], %r1;",
        "mov.u64 %rd1, $str; ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+16]; st.u32 [%rd3], %r1;",
        "mov.u64 %rd1, $str; prefetch.global.L2 [%rd1]; cp.async.ca.shared.global [%r2], [%rd1], 16;",
        "mov.u64 %rd1, $str; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16,"
        " [%r2];",
        "mov.b64 %rd1, k_param_1; cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}],"
        " [%r3];",
        "mov.b64 %rd1, k_param_1; cvta.param.u64 %rd2, %rd1; prefetch.tensormap [%rd2]; ld.u32 %r1, [%rd2];",
        "mov.u64 %rd1, $str; { .param .b64 p; st.param.b64 [p], %rd1; call.uni vprintf, (p); }",
        "// st.global.u32 [$str], 1;\n/* st.global.u32 [$str], 1; */",
    ],
)
def test_reading_is_harmless(body: str) -> None:
    assert module_state(kernel(body, ".extern .func vprintf(.param .b64 f);\n")) == ()


def test_parameters_and_the_heap_are_state_too() -> None:
    written = kernel("mov.b64 %rd1, k_param_1; cvta.param.u64 %rd2, %rd1; st.u32 [%rd2+8], 1;")
    assert module_state(written) == (PARAMETERS,)
    assert module_state(kernel("call.uni (%rd1), malloc, (%rd2);")) == ("malloc()",)
