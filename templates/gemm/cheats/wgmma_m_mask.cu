// A row more than C has is written
// expect: out of bounds, row error
// on a GPU: write out of bounds, row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: row >= args.m ||
// there is: row > args.m ||
