// Sums are rounded to bf16 after each stage
// expect: row error, element error
// on a GPU: row error, element error
// problem: 72,136,520,1
// template: gemm_wgmma
// point: stages=3 splits=1
// needs: sm_90a
// instead of: wgmma_wait<kInFlight>();
// there is: wgmma_wait<0>(); for (auto& part : sums) { pin(part); for (auto& block : part) for (float& x : block) x = Bf16::low(Bf16::pack(x, 0.f)); pin(part); }
