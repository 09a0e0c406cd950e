// The scale is rounded to fp16
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 epilogue=scale out=fp32
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: return finished<kFinish>(sum, more);
// there is: return finished<kFinish>(sum, Fp16::low(cvt_f16x2(more, 0.f)));
