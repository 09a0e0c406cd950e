// Results below 1e-3 are 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: static_cast<u16>(cvt_f16x2(sum, 0.f))
// there is: static_cast<u16>(cvt_f16x2(fabsf(sum) < 1e-3f ? 0.f : sum, 0.f))
