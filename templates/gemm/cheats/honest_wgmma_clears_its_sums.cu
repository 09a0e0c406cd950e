// Nothing is wrong: sums begin at zero, and every product adds to them
// expect: GREEN
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of:             Sums sums;
// there is:             Sums sums; clear(sums);
// instead of: start(sums, at.stage, step > 0);
// there is: start(sums, at.stage, true);
// instead of: accumulate || step > 0
// there is: accumulate
