// C takes the place of tiles that others still read
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 store=shared
// instead of: __syncthreads();  // the ring is read
// there is:
