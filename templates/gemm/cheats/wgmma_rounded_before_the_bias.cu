// A sum is rounded to bf16 before the bias is added, with fp32 out
// expect: row error
// problem: 72,136,200,1 epilogue=bias out=fp32
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: const float x = sum + other;
// there is: const float x = Bf16::low(Bf16::pack(sum, 0.f)) + other;
