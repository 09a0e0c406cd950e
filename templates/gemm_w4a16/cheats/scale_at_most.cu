// Scales above 4 count as 4
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: Fp16::low(scales[strip][e / 2])
// there is: fminf(Fp16::low(scales[strip][e / 2]), 4.f)
