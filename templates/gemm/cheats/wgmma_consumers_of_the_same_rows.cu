// Both consumers multiply the rows of the first
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: ATile::offset(consumer * kRows * kGroupRows, 0)
// there is: ATile::offset(0, 0)
