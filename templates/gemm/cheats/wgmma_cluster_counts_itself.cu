// A stage is refilled for both CTAs once its own has read it
// expect: race, barrier misuse, deadlock
// on a GPU: a symptom, emulator: race, HUNG, emulator: barrier misuse
// problem: 136,136,520,1
// template: gemm_wgmma
// point: multicast=b bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: kCtas * 4 * kReaders)
// there is: 4 * kReaders)
