// Columns beyond the last one are stored, into the next row
// expect: race, row error, out of bounds
// on a GPU: a symptom, write outside a buffer
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: if (column >= at.n) return;
// there is: if (column > at.n) return;
