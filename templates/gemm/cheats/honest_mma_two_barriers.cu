// Nothing is wrong: a barrier more
// expect: GREEN
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: multiply(sums, shared.ring[(step - begin) % kStages], at);
// there is: multiply(sums, shared.ring[(step - begin) % kStages], at); __syncthreads();
