// The last step of K is lost where there are several
// expect: row error
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: for (int step = begin; step < end; ++step) {
// there is: for (int step = begin; step < max(begin + 1, end - 1); ++step) {
