// The last column of odd rows brings one more
// expect: race, out of bounds
// on a GPU: write out of bounds, a symptom, emulator: race
// problem: 40,101,72,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: if (column + 1 < args.n) put(to
// there is: put(to
