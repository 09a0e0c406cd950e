// Nothing is wrong: groups are taken from the last to the first
// expect: GREEN
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: const int group = first + index;
// there is: const int group = first + count - 1 - index;
// instead of: eight_of_x(stage, block, first + index, tile, half)
// there is: eight_of_x(stage, block, first + count - 1 - index, tile, half)
