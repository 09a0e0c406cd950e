// A CTA ends while the other still copies into it
// expect: race
// on a GPU: a symptom, emulator: race, CRASHED
// problem: 136,136,200,1
// template: gemm_wgmma
// point: multicast=b bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: if constexpr (kCtas > 1) cluster_arrive_relaxed(), cluster_wait();
// there is:
