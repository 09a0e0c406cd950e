// The last column is not stored where N is odd
// expect: row error, NaN in the output, uninitialised output
// on a GPU: row error, NaN in the output
// problem: 72,137,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: if (column < at.n) put(
// there is: if (column + 1 < at.n) put(
