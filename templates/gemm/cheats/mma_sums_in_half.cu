// Sums are rounded to fp16 after each step
// expect: row error, element error
// on a GPU: row error, Inf in the output, NaN in the output
// problem: 72,136,200,1 out=fp32
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: multiply(sums, shared.ring[(step - begin) % kStages], at);
// there is: multiply(sums, shared.ring[(step - begin) % kStages], at); for (int i = 0; i < kBlocksM; ++i) for (int j = 0; j < kBlocksN; ++j) for (int e = 0; e < 4; ++e) sums[i][j][e] = Fp16::low(cvt_f16x2(sums[i][j][e], 0.f));
