// A lane has the other half of A than of B
// expect: row error
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: a8[block] = eight_of_a(stage, block, tile, half);
// there is: a8[block] = eight_of_a(stage, block, tile, 1 - half);
