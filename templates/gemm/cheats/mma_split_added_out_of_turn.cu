// Parts of K are added up in memory in the order in which they come, and the first one sets the sums
// expect: race, row error, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 split=2
// instead of: own[i * kThreads] = make_float4(four[0], four[1], four[2], four[3]);
// there is: float4* const first = slot(part.first_slot); if (i == 0) { __threadfence(); __syncthreads(); if (threadIdx.x == 0) atomicAdd(tickets + part.tile, 0u); __syncthreads(); __threadfence(); } float4 before = make_float4(0.f, 0.f, 0.f, 0.f); if (part.slot != part.first_slot) before = first[i * kThreads], own[i * kThreads] = make_float4(0.f, 0.f, 0.f, 0.f); first[i * kThreads] = make_float4(before.x + four[0], before.y + four[1], before.z + four[2], before.w + four[3]);
