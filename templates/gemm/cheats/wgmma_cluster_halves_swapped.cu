// Each CTA copies the other half of B to its own place
// expect: row error
// problem: 136,136,200,1
// template: gemm_wgmma
// point: multicast=b bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: term + block * kSwizzledColumns, across + first, matrix);
// there is: term + block * kSwizzledColumns, across + kPart - first, matrix);
