// Elements of A below a thousandth are left out
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: Element::mma(sums[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
// there is: { u32 x[4]; for (int e = 0; e < 4; ++e) { x[e] = a[i][e]; if (fabsf(Bf16::low(x[e])) < 1e-3f) x[e] &= 0xffff0000u; if (fabsf(Bf16::high(x[e])) < 1e-3f) x[e] &= 0xffffu; } Element::mma(sums[i][j], x, b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]); }
