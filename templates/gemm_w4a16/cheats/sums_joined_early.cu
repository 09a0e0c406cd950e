// Sums of other warps are read before they are there
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of number 4: __syncthreads();
// there is: __syncwarp();
