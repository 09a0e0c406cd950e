// Nothing is wrong: the lanes add up the other way
// expect: GREEN
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of: for (int lanes = 16; lanes; lanes /= 2)
// there is: for (int lanes = 1; lanes < 32; lanes *= 2)
