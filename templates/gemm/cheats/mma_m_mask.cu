// A row too many is stored
// expect: race, row error, out of bounds
// on a GPU: a symptom, write outside a buffer
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: if (row >= at.m) return;
// there is: if (row > at.m) return;
