// Nothing is wrong: K is walked from its end
// expect: GREEN
// problem: 72,136,520,1 out=fp32
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (work.first + step) * kBK;
// there is: (work.first + work.steps - 1 - step) * kBK;
