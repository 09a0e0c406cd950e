// The epilogue takes sums before the last product has ended
// expect: race, missing fence
// on a GPU: a symptom, emulator: race, emulator: missing fence
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of number 2: wgmma_wait<0>();
// there is:
