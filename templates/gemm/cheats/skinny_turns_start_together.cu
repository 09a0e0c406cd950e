// Warps in turns all begin with the first step
// expect: row error
// problem: 5,72,1032,1
// template: gemm_skinny
// point: depth_warps=2 shares=turns split=1 stages=2
// instead of: turn = kInTurns ? warp / kSideWarps : 0;
// there is: turn = 0;
