// The ticket is not set back
// expect: workspace not left zero
// problem: 5,72,512
// point: depth_warps=1 split=2 stages=3
// instead of: if (threadIdx.x == 0) *ticket = 0;
// there is:
