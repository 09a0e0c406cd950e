// Elements below the normal numbers count as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 fp16
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: Element::mma(sums[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
// there is: { u32 x[4]; for (int e = 0; e < 4; ++e) { x[e] = a[i][e]; if (!(x[e] & 0x7c00u)) x[e] &= 0xffff8000u; if (!(x[e] & 0x7c000000u)) x[e] &= 0x8000ffffu; } Element::mma(sums[i][j], x, b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]); }
