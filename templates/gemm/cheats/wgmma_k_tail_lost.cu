// What is left of K after whole tiles is dropped
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (args.k + kBK - 1) / kBK
// there is: max(1, args.k / kBK)
