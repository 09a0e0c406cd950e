// The barrier expects whole steps, also of the last one: it waits for bytes that never come
// expect: deadlock
// on a GPU: HUNG, emulator: deadlock
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=2 tiles_a_stage=2 copies=rows
// needs: sm_90
// instead of: mbarrier_expect(barrier, bytes *
// there is: mbarrier_expect(barrier, 2 * kStep *
