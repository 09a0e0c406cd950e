// Nothing is wrong: each step has come before the next is asked for
// expect: GREEN
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: cp_async_wait<kStages - 2>();
// there is: cp_async_wait<0>();
