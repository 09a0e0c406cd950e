// Nothing is wrong: barriers of a cluster wait for threads that have not ended
// expect: GREEN
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=2 join=cluster stages=3
// needs: sm_90a
// instead of: if constexpr (kJoinCluster) {
// there is: if constexpr (false) {
