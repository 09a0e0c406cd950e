// Two parts of K share a tile
// expect: row error
// problem: 72,136,264,1 out=fp32
// template: gemm_wgmma
// point: splits=2 stages=3
// needs: sm_90a
// instead of: deep * (split + 1) / kSplits) - first
// there is: min(deep, deep * (split + 1) / kSplits + 1)) - first
