// Sums of other warps are read before they are there
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of number 3: __syncthreads();
// there is: __syncwarp();
