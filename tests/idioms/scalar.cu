// Idioms of single threads: arithmetic, calls, tables, local memory. Compiled as warp.cu is.
#include <cuda_fp16.h>

typedef unsigned u32;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(128) name(const u32* x, u32* o, float* f, u32* w)
#define I (blockIdx.x * 128 + threadIdx.x)

KERNEL(sines) {
  float s, c;
  sincosf((float)(x[I] & 0xfffff), &s, &c);
  f[I] = 2 + s + c + sinf(x[I] * 1e-3f) + cosf(-1.0f * (x[I] & 255)) + sinpif(x[I] % 7 / 4.0f);
}
KERNEL(rotary) {  // pairs of numbers turned by angles that grow with the position
  const float angle = (I / 32) * powf(10000.0f, -(float)(threadIdx.x % 32 / 2) / 16);
  const float a = x[I] & 255, b = __shfl_xor_sync(~0u, a, 1);
  f[I] = 500 + (threadIdx.x & 1 ? b * sinf(angle) + a * cosf(angle) : a * cosf(angle) - b * sinf(angle));
}
KERNEL(powers) {
  const float a = 1 + (x[I] & 63);
  f[I] = powf(a, 1.7f) + expf(a / 32) + logf(a) + erff(a / 64) + tanhf(a / 8) + rsqrtf(a) + cbrtf(a) + exp2f(a / 16) +
         log1pf(a) + atan2f(a, 3);
}
KERNEL(doubles) {
  const double a = 1 + (x[I] & 1023), b = fma(a, a, 0.5);
  f[I] = sqrt(b) + floor(b / a) + rint(a / 3) + (float)(sin(a) + 2 + pow(a, 0.25) + exp(-a / 512));
}
KERNEL(divisions) {
  const int a = (int)x[I] - (1 << 30), b = (int)(x[I] >> 7 & 1023) - 511;
  const u32 c = (x[I] >> 3 & 255) + 1;
  o[I] = (u32)(a / (b ? b : 3)) ^ (u32)(a % (b ? b : 3)) ^ x[I] / c ^ x[I] % c ^ x[I] / 7;
}
KERNEL(divisions_64) {
  const u64 a = (u64)x[I] * 0x123456789ull, b = (u64)x[I] * 77 + 1;
  const long long c = -(long long)(a >> 3);
  o[I] = (u32)(a / b) ^ (u32)(a % b) ^ (u32)(c / (long long)b) ^ (u32)__umul64hi(a, b) ^ (u32)(c % 1000003);
}
KERNEL(bit_counts) {
  const u32 v = x[I] | 1;
  o[I] = __popc(v) + 64 * __clz(v) + 4096 * __ffs(v) + (__brev(v) >> 20) + __popcll((u64)v << 9) +
         __clzll((u64)v) * 3 + ((v >> 5 & 31) ^ (v << 3));
}
KERNEL(byte_permutes) { o[I] = __byte_perm(x[I], ~x[I], 0x3715) ^ __byte_perm(x[I], 7, x[I] & 0x7777); }
KERNEL(funnel_shifts) {
  o[I] = __funnelshift_l(x[I], ~x[I], x[I] & 63) ^ __funnelshift_r(x[I], 99, 7) ^ __funnelshift_lc(1, x[I], 40);
}
KERNEL(dot_products_of_bytes) {
  o[I] = __dp4a((int)x[I], 0x01ff0203, 5) + __dp4a(x[I], 0x01020304u, 1u) + __dp2a_lo((int)x[I], 0x1234, 2);
}
KERNEL(bytes_at_once) {
  o[I] = __vadd4(x[I], 0x01f00210) ^ __vcmpgtu4(x[I], 0x20202020);
}
KERNEL(local_array) {
  u32 a[16];
  for (int i = 0; i < 16; i++) a[i] = x[I] >> i;
  u32 at = x[I] & 15, sum = 0;
  for (int i = 0; i < 40; i++) sum += a[at] & 255, at = (at + a[at]) & 15;
  o[I] = sum;
}
typedef u32 (*Step)(u32);
__device__ __noinline__ u32 triple(u32 v) { return v * 3; }
__device__ __noinline__ u32 swapped(u32 v) { return v << 16 | v >> 16; }
__device__ __noinline__ u32 inverse(u32 v) { return ~v; }
__device__ Step steps[] = {triple, swapped, inverse};
KERNEL(function_pointers) { o[I] = steps[x[I] % 3](x[I]) + steps[1](5); }
__device__ __noinline__ u32 depth(u32 v, u32 n) { return n ? v + depth(v * 5 + n, n - 1) * 3 : v; }
KERNEL(recursion) { o[I] = depth(x[I] & 255, x[I] % 11); }
struct Shape {
  __device__ virtual u32 area(u32 v) const { return v; }
};
struct Square : Shape {
  __device__ u32 area(u32 v) const override { return v * v; }
};
KERNEL(virtual_functions) {
  Shape shape;
  Square square;
  const Shape* one = x[I] & 1 ? &shape : &square;
  o[I] = one->area(x[I] & 1023);
}
KERNEL(switch_table) {
  u32 v = x[I];
  switch (v % 9) {
    case 0: v = v * 3 + 1; break;
    case 1: v ^= 0x55; break;
    case 2: v = __popc(v); break;
    case 3: v -= 17; break;
    case 4: v = v >> 3; break;
    case 5: v = ~v; break;
    case 6: v = v * v; break;
    case 7: v = v << 5; break;
    default: v = 4;
  }
  o[I] = v;
}
__constant__ u32 weights[4] = {1, 10, 100, 1000};
__device__ const u32 primes[4] = {2, 3, 5, 7};
KERNEL(tables) {
  static const u32 more[4] = {11, 13, 17, 19};
  static constexpr u32 last[2] = {4, 5};
  o[I] = weights[x[I] & 3] + primes[x[I] >> 2 & 3] + more[x[I] >> 4 & 3] + last[x[I] & 1];
}
KERNEL(assertions) {
  assert(x[I] < 1u << 31);
  if (x[I] == ~0u) printf("%s: thread %u\n", __func__, I);
  if (x[I] == ~0u) __trap();
  o[I] = x[I] + 2;
}
KERNEL(vectors) {
  const uint4 v = reinterpret_cast<const uint4*>(x)[I / 4];
  if (I % 2 == 0) reinterpret_cast<uint2*>(o)[I / 2] = make_uint2(v.x + v.y, v.z + v.w);
}
KERNEL(small_types) {
  const signed char c = (signed char)x[I];
  const short s = (short)(x[I] >> 3);
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(x);
  o[I] = (u32)(c * s) + bytes[I * 4 + 2] + (u32)(char)(s >> 9);
}
KERNEL(conversions) {
  const float a = (int)x[I] * 1e-4f - 50000.0f;
  o[I] = (u32)__float2int_rn(a) ^ (u32)__float2int_rd(a) ^ (u32)__float2uint_rz(a) ^ (u32)__half_as_ushort(__float2half(a / 64)) ^
         (u32)__float_as_int(a) ^ (u32)__double2ll_rn(a * 1e3);
}
KERNEL(carries) {
  u32 low, high;
  asm("add.cc.u32 %0, %2, %3; addc.u32 %1, %2, 0;" : "=r"(low), "=r"(high) : "r"(x[I] << 1), "r"(~x[I]));
  const u64 wide = (u64)x[I] * 0xfedcba98ull;
  o[I] = low ^ high ^ (u32)(wide >> 32) ^ __umulhi(x[I], x[I]) ^ __mul24(x[I], 3) ^ __sad(5, (int)x[I] >> 1, 1);
}
