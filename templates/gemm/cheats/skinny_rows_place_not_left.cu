// The next step is copied to where the one lies that is multiplied now
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 5,72,1032,1
// template: gemm_skinny
// point: depth_warps=2 stages=2 copies=rows
// needs: sm_90
// instead of: at.wait();
// there is: at.wait(), at.copy();
// instead of: at.copy();     // where it lay
// there is:
