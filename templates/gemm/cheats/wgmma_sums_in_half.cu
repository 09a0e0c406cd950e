// Sums are rounded to fp16 after each stage
// expect: row error, Inf in the output, NaN in the output, element error
// on a GPU: row error, Inf in the output, NaN in the output, element error
// problem: 72,136,520,1 fp16
// template: gemm_wgmma
// point: stages=3 splits=1
// needs: sm_90a
// instead of: wgmma_wait<kInFlight>();
// there is: wgmma_wait<0>(); for (auto& part : sums) { pin(part); for (auto& block : part) for (float& x : block) x = Fp16::low(Fp16::pack(x, 0.f)); pin(part); }
