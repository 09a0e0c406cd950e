// Elements of A above 4096 count as 4096
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: Element::mma(sums[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
// there is: { u32 x[4]; for (int e = 0; e < 4; ++e) x[e] = cvt_bf16x2(fminf(Bf16::low(a[i][e]), 4096.f), fminf(Bf16::high(a[i][e]), 4096.f)); Element::mma(sums[i][j], x, b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]); }
