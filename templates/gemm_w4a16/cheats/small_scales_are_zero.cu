// Scales below the normal numbers of fp16 count as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: Fp16::low(scales[strip][e / 2])
// there is: (fabsf(Fp16::low(scales[strip][e / 2])) < 6e-5f ? 0.f : Fp16::low(scales[strip][e / 2]))
