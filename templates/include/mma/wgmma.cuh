// wgmma: matrix products of 64 rows by a warpgroup, asynchronous, operands in shared memory (sm_90a).
// Accumulators are laid out as those of mma.m16n8k16: warp w of the group has rows 16 w .. 16 w + 15.
#pragma once
#include "memory/element.cuh"
#include "ptx/mbarrier.cuh"

namespace evo {

// wgmma.fence: registers written by ordinary instructions, for the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group: at most `kPending` of the latest groups are still in flight afterwards.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(kPending) : "memory");
}

// The same for a number that is a constant only once loops are unrolled.
template <int kMost = 63>
__device__ __forceinline__ void wgmma_wait(int pending) {
    if constexpr (kMost == 0) wgmma_wait<0>();
    else if (pending >= kMost) wgmma_wait<kMost>();
    else wgmma_wait<kMost - 1>(pending);
}

// Keeps the compiler from moving uses of these registers across this line: it does not know that a wgmma
// still reads or writes them.
template <int kColumns>
__device__ __forceinline__ void pin(float (&registers)[kColumns][4]) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(registers[j][e]) :: "memory");
}

// setmaxnreg, by all warps of a warpgroup
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(kRegisters));
}

// The descriptor of a matrix stored in rows of 128 bytes with the 128-byte swizzle, eight rows to a pattern of
// 1024 bytes. Along its rows (K-major) kBlockBytes is ignored; across them (MN-major) it is the distance from
// 64 columns to the next 64.
template <int kBlockBytes = 16>
struct MatrixDescriptor {
    u32 low;

    __device__ __forceinline__ explicit MatrixDescriptor(u32 address)
        : low((address & 0x3ffff) >> 4 | (kBlockBytes >> 4) << 16) {}
    // Of what lies `bytes` further on: one addition, as addresses end well below the field's width.
    __device__ __forceinline__ u64 at(u32 bytes) const {
        constexpr u64 kPattern = 1024, kSwizzle128 = 1;
        return ((kPattern >> 4) << 32 | kSwizzle128 << 62) | (low + (bytes >> 4));
    }
};

template <class Element>
struct OperandType;
template <>
struct OperandType<Fp16> {
    static constexpr char kName[] = "f16";
};
template <>
struct OperandType<Bf16> {
    static constexpr char kName[] = "bf16";
};

// Wgmma<N>::keys: d = (accumulate ? d : 0) + A B^T, both K-major in shared memory: 64 x 16 by N x 16.
// Wgmma<N>::values: d += A B, A 64 x 16 in registers, B 16 x N in shared memory, MN-major.
template <int kColumns>
struct Wgmma;

// Operand numbers count through the asm's list: N / 2 accumulators, then what the last arguments name.
#define EVO_ACCUMULATORS(d, j)                                                                   \
    "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3]), "+f"(d[j + 1][0]), "+f"(d[j + 1][1]), \
        "+f"(d[j + 1][2]), "+f"(d[j + 1][3])
#define EVO_NUMBERS_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define EVO_NUMBERS_2 EVO_NUMBERS_1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define EVO_NUMBERS_3 EVO_NUMBERS_2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define EVO_NUMBERS_4 EVO_NUMBERS_3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define EVO_NUMBERS_5 EVO_NUMBERS_4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define EVO_NUMBERS_6 EVO_NUMBERS_5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define EVO_NUMBERS_7 EVO_NUMBERS_6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define EVO_NUMBERS_8 EVO_NUMBERS_7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define EVO_NUMBERS_9 EVO_NUMBERS_8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define EVO_NUMBERS_10 EVO_NUMBERS_9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define EVO_NUMBERS_11 EVO_NUMBERS_10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define EVO_NUMBERS_12 EVO_NUMBERS_11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define EVO_NUMBERS_13 EVO_NUMBERS_12 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define EVO_NUMBERS_14 EVO_NUMBERS_13 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define EVO_NUMBERS_15 EVO_NUMBERS_14 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define EVO_NUMBERS_16 EVO_NUMBERS_15 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define EVO_D_1(d) EVO_ACCUMULATORS(d, 0)
#define EVO_D_2(d) EVO_D_1(d), EVO_ACCUMULATORS(d, 2)
#define EVO_D_3(d) EVO_D_2(d), EVO_ACCUMULATORS(d, 4)
#define EVO_D_4(d) EVO_D_3(d), EVO_ACCUMULATORS(d, 6)
#define EVO_D_5(d) EVO_D_4(d), EVO_ACCUMULATORS(d, 8)
#define EVO_D_6(d) EVO_D_5(d), EVO_ACCUMULATORS(d, 10)
#define EVO_D_7(d) EVO_D_6(d), EVO_ACCUMULATORS(d, 12)
#define EVO_D_8(d) EVO_D_7(d), EVO_ACCUMULATORS(d, 14)
#define EVO_D_9(d) EVO_D_8(d), EVO_ACCUMULATORS(d, 16)
#define EVO_D_10(d) EVO_D_9(d), EVO_ACCUMULATORS(d, 18)
#define EVO_D_11(d) EVO_D_10(d), EVO_ACCUMULATORS(d, 20)
#define EVO_D_12(d) EVO_D_11(d), EVO_ACCUMULATORS(d, 22)
#define EVO_D_13(d) EVO_D_12(d), EVO_ACCUMULATORS(d, 24)
#define EVO_D_14(d) EVO_D_13(d), EVO_ACCUMULATORS(d, 26)
#define EVO_D_15(d) EVO_D_14(d), EVO_ACCUMULATORS(d, 28)
#define EVO_D_16(d) EVO_D_15(d), EVO_ACCUMULATORS(d, 30)

#define EVO_WGMMA(N, SIXTEENTHS, I0, I1, I2, I3, I4, I5, I6)                                                    \
template <>                                                                                                     \
struct Wgmma<N> {                                                                                               \
    template <class Element>                                                                                    \
    static __device__ __forceinline__ void keys(float (&d)[N / 8][4], u64 a, u64 b, bool accumulate) {          \
        asm volatile("{\n"                                                                                      \
                     ".reg .pred accumulate;\n"                                                                 \
                     "setp.ne.b32 accumulate, %" #I2 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #I3 ".%" #I3                            \
                     " { " EVO_NUMBERS_##SIXTEENTHS " }, %" #I0 ", %" #I1 ", accumulate, 1, 1, 0, 0;\n"         \
                     "}"                                                                                        \
                     : EVO_D_##SIXTEENTHS(d)                                                                    \
                     : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "C"(OperandType<Element>::kName)      \
                     : "memory");                                                                               \
    }                                                                                                           \
    template <class Element>                                                                                    \
    static __device__ __forceinline__ void values(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, bool accumulate) {\
        asm volatile("{\n"                                                                                      \
                     ".reg .pred accumulate;\n"                                                                 \
                     "setp.ne.b32 accumulate, %" #I5 ", 0;\n"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.%" #I6 ".%" #I6                            \
                     " { " EVO_NUMBERS_##SIXTEENTHS " }, { %" #I0 ", %" #I1 ", %" #I2 ", %" #I3 " }, %" #I4     \
                     ", accumulate, 1, 1, 1;\n"                                                                 \
                     "}"                                                                                        \
                     : EVO_D_##SIXTEENTHS(d)                                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),   \
                       "C"(OperandType<Element>::kName)                                                         \
                     : "memory");                                                                               \
    }                                                                                                           \
};

EVO_WGMMA(16, 1, 8, 9, 10, 11, 12, 13, 14)
EVO_WGMMA(32, 2, 16, 17, 18, 19, 20, 21, 22)
EVO_WGMMA(48, 3, 24, 25, 26, 27, 28, 29, 30)
EVO_WGMMA(64, 4, 32, 33, 34, 35, 36, 37, 38)
EVO_WGMMA(80, 5, 40, 41, 42, 43, 44, 45, 46)
EVO_WGMMA(96, 6, 48, 49, 50, 51, 52, 53, 54)
EVO_WGMMA(112, 7, 56, 57, 58, 59, 60, 61, 62)
EVO_WGMMA(128, 8, 64, 65, 66, 67, 68, 69, 70)
EVO_WGMMA(144, 9, 72, 73, 74, 75, 76, 77, 78)
EVO_WGMMA(160, 10, 80, 81, 82, 83, 84, 85, 86)
EVO_WGMMA(176, 11, 88, 89, 90, 91, 92, 93, 94)
EVO_WGMMA(192, 12, 96, 97, 98, 99, 100, 101, 102)
EVO_WGMMA(208, 13, 104, 105, 106, 107, 108, 109, 110)
EVO_WGMMA(224, 14, 112, 113, 114, 115, 116, 117, 118)
EVO_WGMMA(240, 15, 120, 121, 122, 123, 124, 125, 126)
EVO_WGMMA(256, 16, 128, 129, 130, 131, 132, 133, 134)

}  // namespace evo
