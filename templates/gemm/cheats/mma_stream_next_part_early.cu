// The next part fills the ring that others still read
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 264,264,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 work=stream store=shared
// instead of: __syncthreads();  // the next part begins with the ring
// there is:
