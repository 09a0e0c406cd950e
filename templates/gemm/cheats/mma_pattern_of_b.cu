// Columns of B are read by another pattern than they were written by
// expect: row error
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: Layout::offset(column + (lane & 7) + (lane >> 4) * 8, 2 * step + (lane >> 3 & 1)));
// there is: Layout::offset(column + (lane & 7) + (lane >> 4) * 8, (2 * step + (lane >> 3 & 1)) ^ (lane >> 2 & 1)));
