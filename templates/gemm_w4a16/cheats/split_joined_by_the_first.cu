// The first CTA to come joins the sums
// expect: uninitialised read, race
// on a GPU: a symptom, workspace not left zero
// problem: 5,72,512
// point: depth_warps=1 split=2 stages=3
// instead of: == count - 1;
// there is: == 0u;
