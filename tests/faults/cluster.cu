// Two CTAs of a cluster each sum half of a row and join through distributed shared memory. Honest as it stands.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

constexpr int THREADS = 128;

extern "C" __global__ void __cluster_dims__(2, 1, 1) fault(const float* in, float* out, int count) {
  __shared__ float mine[THREADS];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  const int tid = threadIdx.x, row = blockIdx.x / 2;
  float sum = 0;
  for (int i = tid; i < count / 2; i += THREADS) sum += in[row * count + rank * (count / 2) + i];
  mine[tid] = sum;
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");  // FAULT no_cluster_barrier: ; // FAULT only_the_cta_barrier: __syncthreads(); // FAULT relaxed_arrival: asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // FAULT no_cluster_barrier: ; // FAULT only_the_cta_barrier: ;
  if (rank == 0) {
    const float* other = cluster.map_shared_rank(mine, 1);  // FAULT rank_out_of_the_cluster: const float* other = cluster.map_shared_rank(mine, 2);
    out[row * THREADS + tid] = sum + other[tid];  // SEEN no_cluster_barrier, only_the_cta_barrier, relaxed_arrival: race | uninitialised read // SEEN leaves_before_it_is_read, one_cta_waits_alone: race | out of bounds // SEEN rank_out_of_the_cluster: out of bounds
  }
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");  // FAULT leaves_before_it_is_read: ; // FAULT one_cta_waits_alone: if (rank == 0) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // FAULT leaves_before_it_is_read: ; // FAULT one_cta_waits_alone: if (rank == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
