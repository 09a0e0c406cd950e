// Nothing is wrong: an access is added up from its end
// expect: GREEN
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of: for (int e = 0; e < kVector; ++e) {
// there is: for (int e = kVector - 1; e >= 0; --e) {
