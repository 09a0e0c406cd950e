// Two columns more than a row has are written: they begin the next row
// expect: out of bounds, race, row error
// on a GPU: write out of bounds, a symptom, emulator: race
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: column >= args.n) continue
// there is: column > args.n) continue
