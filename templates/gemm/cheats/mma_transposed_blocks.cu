// The blocks of a transposed A are exchanged
// expect: row error
// problem: 72,136,200,1 layout=TN
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: row / 8 + (lane >> 3 & 1)));
// there is: row / 8 + (lane >> 4 & 1)));
