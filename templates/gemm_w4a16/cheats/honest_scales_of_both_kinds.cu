// Nothing is wrong: sums are scaled by a product, then added
// expect: GREEN
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: sums[strip][block][e] += Fp16::low(scales[strip][e / 2]) * of_group[strip][block][e];
// there is: sums[strip][block][e] = __fadd_rn(sums[strip][block][e], __fmul_rn(Fp16::low(scales[strip][e / 2]), of_group[strip][block][e]));
