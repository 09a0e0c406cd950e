// Sums take the place of rings that other warps still read
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: __syncthreads();  // all rings are read
// there is:
