// 2^x without the special-function unit: the multiply-add pipe has room where a kernel waits for exponentials
// (16 a clock and SM on sm_80 and sm_90, against 128 multiply-adds).
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// 2^x for x below 126, within 1.02e-4 relative: below half a step of both 16-bit types. Adding 1.5 * 2^23 rounds x
// to an integer n in the low bits; a cubic (minimax of the relative error over [-1/2, 1/2] among those that are 1 at 0)
// gives 2^(x-n), and n is added to its exponent. 0 for x up to -127, -inf included: of a masked score nothing may be
// left, however large its value is. In between results may be off by 2^-126.
__device__ __forceinline__ float exp2_poly(float x) {
    constexpr float kRound = 12582912.f;
    x = fmaxf(x, -127.f);
    const float shifted = x + kRound, f = x - (shifted - kRound);
    float y = fmaf(f, 0.0550094545f, 0.242211014f);
    y = fmaf(y, f, 0.693282783f);
    y = fmaf(y, f, 1.f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

}  // namespace evo
