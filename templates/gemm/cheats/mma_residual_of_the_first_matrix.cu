// All matrices have the residual of the first
// expect: row error
// problem: 40,72,72,3 epilogue=residual
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: (matrix, row, column + offset, at.m, at.n)
// there is: (0, row, column + offset, at.m, at.n)
