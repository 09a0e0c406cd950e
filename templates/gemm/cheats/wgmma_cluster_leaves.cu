// A CTA exits before the other one's last arrivals at its barriers
// expect: race
// on a GPU: a symptom, emulator: race, CRASHED
// problem: 136,136,200,1
// template: gemm_wgmma
// point: multicast=b bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: for (int stage = 0; stage < kStages; ++stage, at.advance())
// there is: for (int stage = kStages; stage < kStages; ++stage)
