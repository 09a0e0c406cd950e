// SiLU of a large number is infinity by infinity
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 epilogue=bias_silu
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: return finished<kFinish>(sum, more);
// there is: { const float x = sum + more; const float e = __expf(x); return e * x / (1.f + e); }
