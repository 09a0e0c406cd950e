// 2^x without the special-function unit: the multiply-add pipe has room where a kernel waits for exponentials
// (16 a clock and SM on sm_80 and sm_90, against 128 multiply-adds).
#pragma once
#include "ptx/ptx.cuh"

namespace evo {

// 2^x for x below 126, within 8e-5 relative: below half a step of both 16-bit types. Adding 1.5 * 2^23 rounds x to
// an integer n in the low bits; a cubic (minimax of the relative error over [-1/2, 1/2]) gives 2^(x-n), and n
// is added to its exponent. Results below 2^-126 become 2^-126, -inf included.
__device__ __forceinline__ float exp2_poly(float x) {
    constexpr float kRound = 12582912.f;
    x = fmaxf(x, -126.f);
    const float shifted = x + kRound, f = x - (shifted - kRound);
    float y = fmaf(f, 0.0551716691f, 0.242611122f);
    y = fmaf(y, f, 0.693260985f);
    y = fmaf(y, f, 0.999928074f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

}  // namespace evo
