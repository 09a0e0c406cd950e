// A stage is free once three of four warps have read it
// expect: race, barrier misuse, deadlock
// on a GPU: a symptom, emulator: race, HUNG, emulator: deadlock, emulator: barrier misuse
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: kCtas * 4 * kReaders)
// there is: kCtas * 3 * kReaders)
