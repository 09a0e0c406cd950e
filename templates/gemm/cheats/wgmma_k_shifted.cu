// Every tile of K begins 8 terms late
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (work.first + step) * kBK;
// there is: (work.first + step) * kBK + 8;
