// Results beyond 3000 are 3000
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: static_cast<u16>(cvt_f16x2(sum, 0.f))
// there is: static_cast<u16>(cvt_f16x2(fminf(fmaxf(sum, -3000.f), 3000.f), 0.f))
