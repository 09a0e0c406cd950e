// Results of bf16 are held within what fp16 holds
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: return finished<kFinish>(sum, more);
// there is: return fminf(fmaxf(finished<kFinish>(sum, more), -65504.f), 65504.f);
