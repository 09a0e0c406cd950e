// Shares are added up before all have come
// expect: race, barrier misuse, deadlock, uninitialised read
// on a GPU: a symptom, emulator: race, HUNG, CRASHED, emulator: barrier misuse, emulator: deadlock
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=2 join=cluster stages=3
// needs: sm_90a
// instead of: mbarrier_wait_cluster(shares_here, 0);
// there is: __syncwarp();
