// Every tile has the bias of the first
// expect: row error
// problem: 72,136,200,1 epilogue=bias
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: (matrix, row, column + offset, at.m, at.n)
// there is: (matrix, row, (column + offset) % kBN, at.m, at.n)
