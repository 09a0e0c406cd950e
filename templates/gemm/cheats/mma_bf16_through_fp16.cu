// Elements of bf16 are multiplied as fp16, which does not hold all of them
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: Element::mma(sums[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
// there is: { u32 x[4], y[2]; for (int e = 0; e < 4; ++e) x[e] = cvt_f16x2(Bf16::low(a[i][e]), Bf16::high(a[i][e])); for (int e = 0; e < 2; ++e) { const u32 p = b[j / 2][2 * (j % 2) + e]; y[e] = cvt_f16x2(Bf16::low(p), Bf16::high(p)); } mma_m16n8k16_f16(sums[i][j], x, y[0], y[1]); }
