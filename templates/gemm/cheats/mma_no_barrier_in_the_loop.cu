// Tiles that others copied are read, and refilled, without a barrier
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: __syncthreads();  // this step's tiles are here for all, and those of the last one are free
// there is:
