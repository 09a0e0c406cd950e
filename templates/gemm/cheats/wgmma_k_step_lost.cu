// The last 16 terms of every stage are left out
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: step < kBK / 16; ++step
// there is: step < kBK / 16 - 1; ++step
