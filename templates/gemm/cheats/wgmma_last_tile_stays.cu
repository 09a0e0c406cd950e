// The last tile of a CTA waits for products that never come
// expect: uninitialised output, NaN in the output
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 persistent=true epilogue=tma panel=4 splits=1
// needs: sm_90a
// instead of: for (int box = 0; box < kAllBoxes; ++box) consumer.leave(box);
// there is: for (int box = 0; box < 0; ++box) consumer.leave(box);
