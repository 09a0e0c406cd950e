// Results that fp16 would not hold exactly are 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1 out=fp32
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 
// instead of: return finished<kFinish>(sum, more);
// there is: const float r = finished<kFinish>(sum, more); return fabsf(r) < 6e-5f ? 0.f : r;
