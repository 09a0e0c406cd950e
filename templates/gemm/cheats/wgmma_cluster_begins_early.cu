// Barriers are used before the other CTA has made its own
// expect: race, barrier misuse, missing fence
// on a GPU: a symptom, emulator: race, HUNG, CRASHED, emulator: barrier misuse
// problem: 136,136,200,1
// template: gemm_wgmma
// point: multicast=b bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: if constexpr (kCtas > 1) cluster_wait();
// there is: if constexpr (false) cluster_wait();
