// Nothing is wrong: a warp walks its steps from the last
// expect: GREEN
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: at = place(first + index, tile, half);
// there is: at = place(first + count - 1 - index, tile, half);
// instead of: eight_of_a(stage, block, first + index, tile, half);
// there is: eight_of_a(stage, block, first + count - 1 - index, tile, half);
