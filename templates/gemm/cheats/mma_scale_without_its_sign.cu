// The scale is taken without its sign
// expect: row error, relation broken: small integers are exact
// problem: 72,136,200,1 epilogue=scale
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: return finished<kFinish>(sum, more);
// there is: return finished<kFinish>(sum, fabsf(more));
