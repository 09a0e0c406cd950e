// Plain CUDA C++: sum of all elements by a tree in shared memory, joined by the last CTA. Honest as it stands.
constexpr int THREADS = 256;

extern "C" __global__ void fault(const float* in, float* partial, unsigned* tickets, float* out, int count) {
  __shared__ float sums[THREADS];
  __shared__ bool last;
  const int tid = threadIdx.x;
  float mine = 0;
  for (int i = blockIdx.x * THREADS * 4 + tid * 4; i < count; i += gridDim.x * THREADS * 4) {
    const float4 x = *reinterpret_cast<const float4*>(in + i);  // FAULT vector_at_odd_offset: const float4 x = *reinterpret_cast<const float4*>(in + i + 1); // SEEN vector_at_odd_offset: misaligned access // FAULT one_row_too_far: const float4 x = *reinterpret_cast<const float4*>(in + i + THREADS * 4); // SEEN one_row_too_far: out of bounds
    mine += x.x + x.y + x.z + x.w;
  }
  sums[tid] = mine;  // FAULT half_written: if (tid < THREADS / 2) sums[tid] = mine;
  __syncthreads();  // FAULT no_barrier_before_tree: ;
  for (int step = THREADS / 2; step > 0; step /= 2) {  // FAULT endless_loop: for (int step = THREADS / 2; count > 0; step /= 2) { // SEEN endless_loop: runaway loop
    if (tid < step) sums[tid] += sums[tid + step];  // SEEN no_barrier_before_tree: race | uninitialised read // SEEN no_barrier_in_tree, warp_barrier_in_tree: race // SEEN barrier_inside_branch: race // SEEN endless_loop: runaway loop // SEEN half_written: uninitialised read // FAULT index_past_the_end: if (tid < step) sums[tid] += sums[tid + step * 2]; // SEEN index_past_the_end: out of bounds
    __syncthreads();  // FAULT no_barrier_in_tree: ; // FAULT warp_barrier_in_tree: __syncwarp(); // FAULT barrier_inside_branch: if (tid < step) __syncthreads(); // SEEN barrier_inside_branch: barrier misuse | deadlock // SEEN endless_loop: runaway loop
  }
  if (tid == 0) {
    partial[blockIdx.x] = sums[0];
    __threadfence();  // FAULT no_fence_before_ticket: ; // FAULT trap: __trap(); // SEEN trap: trap
    last = atomicAdd(tickets, 1u) == gridDim.x - 1;  // FAULT plain_ticket: last = (*tickets)++ == gridDim.x - 1; // SEEN plain_ticket: race
  }
  __syncthreads();
  if (last) {  // FAULT everyone_joins: if (true) { // SEEN barrier_inside_branch: race | uninitialised read
    __threadfence();
    float total = 0;
    for (int i = tid; i < gridDim.x; i += THREADS) total += partial[i];  // SEEN everyone_joins: race | uninitialised read // SEEN no_fence_before_ticket: race
    sums[tid] = total;
    __syncthreads();
    for (int step = THREADS / 2; step > 16; step /= 2) {
      if (tid < step) sums[tid] += sums[tid + step];
      __syncthreads();
    }
    for (int step = 16; step > 0 && tid < 32; step /= 2) {
      if (tid < step) sums[tid] += sums[tid + step];  // SEEN no_warp_barrier, warp_barrier_by_shuffle: race
      __syncwarp();  // FAULT no_warp_barrier: ; // FAULT warp_barrier_by_shuffle: __shfl_sync(~0u, tid, 0);
    }
    if (tid == 0) *out = sums[0], *tickets = 0;  // SEEN everyone_joins: race
  }
}
