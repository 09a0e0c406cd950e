// Sums of groups are kept in fp16
// expect: row error
// problem: 5,72,2048
// point: depth_warps=2 stages=3
// instead of: sums[strip][block][e] += Fp16
// there is: sums[strip][block][e] = Fp16::low(cvt_f16x2(sums[strip][block][e], 0.f)) + Fp16
