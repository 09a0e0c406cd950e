// A step of K is in two parts
// expect: row error
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 split=2
// instead of: (part + 1) / kSplit);
// there is: (part + 1) / kSplit) + (part + 1 < kSplit);
