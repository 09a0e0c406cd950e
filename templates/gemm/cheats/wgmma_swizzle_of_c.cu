// Rows of C leave by the swizzle pattern of the next row
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 epilogue=tma splits=1
// needs: sm_90a
// instead of: row * kPieces / 8
// there is: (row + 1) * kPieces / 8
