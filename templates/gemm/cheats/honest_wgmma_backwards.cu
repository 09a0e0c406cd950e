// Nothing is wrong: tiles are taken from the last to the first
// expect: GREEN
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 persistent=true epilogue=tma panel=4 splits=1
// needs: sm_90a
// instead of: const int place = item / kDealt;
// there is: const int place = all * args.batch - 1 - item / kDealt;
