// Rows of B that are not there are copied
// expect: out of bounds
// on a GPU: a symptom, emulator: out of bounds
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=2 copies=rows
// needs: sm_90
// instead of: b_rows = n - column;
// there is: b_rows = 16 * kStrips;
