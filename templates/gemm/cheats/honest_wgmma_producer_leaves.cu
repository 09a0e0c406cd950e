// Nothing is wrong: barriers of a cluster wait for threads that have not ended
// expect: GREEN
// problem: 136,136,520,1
// template: gemm_wgmma
// point: multicast=b consumers=2 bn=64 stages=3 producer=warpgroup splits=1
// needs: sm_90a
// instead of: if (threadIdx.x / 32 == 4 * kConsumers && elect_lane())
// there is: if (threadIdx.x / 32 > 4 * kConsumers) return; else if (threadIdx.x / 32 == 4 * kConsumers && elect_lane())
