// Elements of B above 600 count as 600
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: Element::mma(sums[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
// there is: { u32 y[2]; for (int e = 0; e < 2; ++e) { const u32 p = b[j / 2][2 * (j % 2) + e]; y[e] = cvt_bf16x2(fminf(Bf16::low(p), 600.f), fminf(Bf16::high(p), 600.f)); } Element::mma(sums[i][j], a[i], y[0], y[1]); }
