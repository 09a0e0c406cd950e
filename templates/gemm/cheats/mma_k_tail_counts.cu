// What lies behind the end of K in a row counts
// expect: row error, NaN in the output
// on a GPU: row error, NaN in the output
// problem: 72,136,200,1 gap=64
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: row < rows_left ? columns_left - 8 * chunk : 0);
// there is: row < rows_left ? 8 : 0);
