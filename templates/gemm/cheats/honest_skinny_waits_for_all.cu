// Nothing is wrong: each step has come before the next is asked for
// expect: GREEN
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: cp_async_wait<kStages - 2>();
// there is: cp_async_wait<0>();
