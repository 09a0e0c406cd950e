// Copied rows are multiplied while they are still on their way
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 5,72,1032,1
// template: gemm_skinny
// point: depth_warps=2 stages=2 copies=rows
// needs: sm_90
// instead of: mbarrier_wait(shared_address(&full[read]), parity);
// there is:
