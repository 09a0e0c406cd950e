// The sign of a scale is lost
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: Fp16::low(scales[strip][e / 2])
// there is: fabsf(Fp16::low(scales[strip][e / 2]))
