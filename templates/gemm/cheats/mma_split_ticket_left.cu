// Tickets are not set back
// expect: workspace not left zero
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 split=2
// instead of: if (threadIdx.x == 0) *ticket = 0;
// there is:
