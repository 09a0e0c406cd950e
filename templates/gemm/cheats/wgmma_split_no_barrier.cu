// A ticket is taken before all threads have left their sums
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 72,136,264,1 out=fp32
// template: gemm_wgmma
// point: splits=2 stages=3
// needs: sm_90a
// instead of number 1:         barrier_sync(kOwnBarrier + consumer, kGroupThreads);
// there is:
