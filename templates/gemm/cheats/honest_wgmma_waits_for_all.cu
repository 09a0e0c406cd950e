// Nothing is wrong: each product ends before the next begins
// expect: GREEN
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: wgmma_wait<kInFlight>();
// there is: wgmma_wait<0>();
