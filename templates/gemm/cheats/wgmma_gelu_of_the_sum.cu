// GELU is taken before the bias is added
// expect: row error
// problem: 72,136,200,1 epilogue=bias_gelu
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: const float x = sum + other;
// there is: const float x = sum;
