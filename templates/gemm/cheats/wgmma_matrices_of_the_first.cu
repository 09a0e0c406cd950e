// Boxes of C are all stored to the first matrix
// expect: NaN in the output, race, row error
// on a GPU: NaN in the output, row error, runs differ
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 epilogue=tma
// needs: sm_90a
// instead of: left + block * kBoxColumns, top, matrix)
// there is: left + block * kBoxColumns, top, 0)
