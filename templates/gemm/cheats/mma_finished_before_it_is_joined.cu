// SiLU is taken of each part of K
// expect: row error
// problem: 72,136,200,1 epilogue=bias_silu
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 split=2
// instead of: own[i * kThreads] = make_float4(four[0], four[1], four[2], four[3]);
// there is: own[i * kThreads] = make_float4(four[0] * logistic(four[0]), four[1], four[2], four[3]);
