// A scale below 0.01 counts as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 epilogue=scale
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: return finished<kFinish>(sum, more);
// there is: return finished<kFinish>(sum, fabsf(more) < 0.01f ? 0.f : more);
