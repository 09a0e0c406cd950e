// SiLU instead of GELU
// expect: row error
// problem: 72,136,200,1 epilogue=bias_gelu
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: 1.5957691216057308f * fmaf(0.044715f * x * x, x, x)
// there is: x
