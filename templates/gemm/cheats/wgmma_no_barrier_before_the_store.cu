// One thread stores the rows of all without waiting for them
// expect: race, missing fence
// on a GPU: a symptom, emulator: race, emulator: missing fence
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 epilogue=tma
// needs: sm_90a
// instead of number 2: barrier_sync(kOwnBarrier + consumer, kGroupThreads);
// there is:
