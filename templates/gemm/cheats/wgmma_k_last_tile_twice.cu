// The last tile of K is the one before it
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (work.first + step) * kBK;
// there is: (work.first + max(0, min(step, work.steps - 2))) * kBK;
