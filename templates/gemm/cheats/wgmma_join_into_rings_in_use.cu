// Shares are sent into rings that may still be read
// expect: race, barrier misuse, deadlock
// on a GPU: a symptom, emulator: race, HUNG, CRASHED, emulator: barrier misuse, emulator: deadlock
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=2 join=cluster stages=3
// needs: sm_90a
// instead of: mbarrier_wait(rings_free, 0);
// there is:
