// GELU is straight from 2.7 on
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 fp16 epilogue=bias_gelu
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: return finished<kFinish>(sum, more);
// there is: { const float x = sum + more; return x > 2.7f ? x : x < -2.7f ? 0.f : finished<kFinish>(sum, more); }
