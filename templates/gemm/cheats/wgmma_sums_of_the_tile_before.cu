// A persistent CTA does not clear its sums for the next tile
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 persistent=true panel=4 splits=1
// needs: sm_90a
// instead of: int steps_before = 0;
// there is: Sums sums; int steps_before = 0;
// instead of:             Sums sums;
// there is:             if (done == 0) clear(sums);
// instead of: start(sums, at.stage, step > 0);
// there is: start(sums, at.stage, true);
