// Sums of the upper half of a warp are lost
// expect: row error
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of: int distance = 16;
// there is: int distance = 8;
