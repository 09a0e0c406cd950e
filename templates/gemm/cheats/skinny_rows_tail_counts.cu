// What lies behind the end of K in the last stage of copied rows counts
// expect: row error, NaN in the output, uninitialised read
// on a GPU: a symptom, NaN in the output, row error
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=2 tiles_a_stage=2 copies=rows
// needs: sm_90
// instead of: if (multiplied - lane % 4 * 8 + kStep <= depth) return;
// there is: if (true) return;
