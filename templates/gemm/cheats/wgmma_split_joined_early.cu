// The last part but one joins them
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// problem: 72,136,520,1 out=fp32
// template: gemm_wgmma
// point: splits=4 stages=3
// needs: sm_90a
// instead of: != kSplits - 1) return false
// there is: < kSplits - 2) return false
