// In turns, A is read ahead as if the next step lay right behind
// expect: row error
// problem: 5,72,1032,1
// template: gemm_skinny
// point: depth_warps=2 shares=turns split=1 tiles_a_stage=2 stages=2 copies=rows
// needs: sm_90
// instead of: (piece < 2 * kTiles ? 0 : kStride - kStep)
// there is: 0
