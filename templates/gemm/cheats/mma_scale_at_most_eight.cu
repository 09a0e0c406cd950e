// A scale beyond 8 counts as 8
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 epilogue=scale
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: return finished<kFinish>(sum, more);
// there is: return finished<kFinish>(sum, fminf(fmaxf(more, -8.f), 8.f));
