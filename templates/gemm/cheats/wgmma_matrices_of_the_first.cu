// Boxes of C are all stored to the first matrix
// expect: NaN in the output, race, row error
// on a GPU: NaN in the output, row error, runs differ
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 epilogue=tma splits=1
// needs: sm_90a
// instead of: box, left, top, matrix)
// there is: box, left, top, 0)
