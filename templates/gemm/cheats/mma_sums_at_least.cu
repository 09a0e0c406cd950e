// Sums below -60000 are cut off, C is fp32
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 out=fp32
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: return finished<kFinish>(sum, more);
// there is: return finished<kFinish>(fmaxf(sum, -6e4f), more);
