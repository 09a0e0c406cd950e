// For include/flash.cuh, in clusters of two CTAs: each hands its tile of the output to the other one, which
// stores it: it is put into the other's shared memory, or with PULL taken from there. A cheat redefines how
// that is ordered.
#include <cooperative_groups.h>
#ifndef BEGUN  // both CTAs have started
#define BEGUN cluster.sync()
#endif
#ifndef HANDED  // both tiles are where they should be
#define HANDED cluster.sync()
#endif
#ifndef FINISHED  // neither CTA needs the other any more
#define FINISHED
#endif
#ifndef PULL
#define PULL 0
#endif
#define PROLOGUE                                                                    \
  __shared__ ELEMENT given[BM * DIM];                                               \
  auto cluster = cooperative_groups::this_cluster();                                \
  ELEMENT* there = cluster.map_shared_rank(given, cluster.block_rank() ^ 1);        \
  BEGUN
#define STORED(row) true
#define STORE(address, value) (PULL ? given : there)[(address) - (o + OFFSET(head) + static_cast<size_t>(first_row) * DIM)] = (value)
#define EPILOGUE                                                                    \
  HANDED;                                                                           \
  const int rows = min(BM, length - (first_row ^ BM));                              \
  ELEMENT* to = o + OFFSET(head) + static_cast<size_t>(first_row ^ BM) * DIM;       \
  for (int i = threadIdx.x; i < rows * DIM; i += THREADS) to[i] = (PULL ? there : given)[i]; \
  FINISHED
