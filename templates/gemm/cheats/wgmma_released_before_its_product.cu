// A stage is given away before its product has ended
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: wgmma_wait<kInFlight>();
// there is:
