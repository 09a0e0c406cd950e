// How threads hand data to each other through memory: the usual ways, and wrong ones. Every kernel is launched
// as 8 CTAs of 64 threads. `count` begins as zeros, `part` holds anything.
using uint32_t = unsigned;
using uint64_t = unsigned long long;

#define ARGUMENTS const float *in, unsigned *count, float *part, float *out
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(64) name(ARGUMENTS)
#define CLUSTER(name) extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(64) name(ARGUMENTS)
#define AT (blockIdx.x * 64 + threadIdx.x)

__device__ unsigned load_relaxed(unsigned *p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ unsigned load_acquire(unsigned *p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ unsigned load_acquire_cta(unsigned *p) {
  unsigned v;
  asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ unsigned load_volatile(unsigned *p) { return *(volatile unsigned *)p; }
__device__ void store_volatile(unsigned *p, unsigned v) { *(volatile unsigned *)p = v; }
__device__ void store_relaxed(unsigned *p, unsigned v) { asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
__device__ void store_release(unsigned *p, unsigned v) { asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
__device__ void store_release_cta(unsigned *p, unsigned v) { asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
__device__ unsigned add_acq_rel(unsigned *p) {
  unsigned v;
  asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ unsigned add_volatile(unsigned *p) {
  const unsigned v = load_volatile(p);
  store_volatile(p, v + 1);
  return v;
}
__device__ unsigned add_relaxed(unsigned *p) {
  const unsigned v = load_relaxed(p);
  store_relaxed(p, v + 1);
  return v;
}
__device__ unsigned add_and_look(unsigned *p) {
  atomicAdd(p, 1);
  return *p - 1;
}
__device__ float plain(const float *p) { return *p; }

// ---- the last CTA adds what all have left
#define LAST(name, ALL, ONE, ADD, AFTER, READ)                            \
  KERNEL(name) {                                                          \
    __shared__ bool last;                                                 \
    part[AT] = in[AT];                                                    \
    ALL;                                                                  \
    __syncthreads();                                                      \
    if (threadIdx.x == 0) {                                               \
      ONE;                                                                \
      last = ADD == gridDim.x - 1;                                        \
    }                                                                     \
    __syncthreads();                                                      \
    if (!last) return;                                                    \
    AFTER;                                                                \
    float sum = 0;                                                        \
    for (unsigned b = 0; b < gridDim.x; b++) sum += READ(&part[b * 64 + threadIdx.x]); \
    out[threadIdx.x] = sum;                                               \
    if (threadIdx.x == 0) *count = 0;                                     \
  }
LAST(last_all_fence, __threadfence(), , atomicAdd(count, 1), , plain)
LAST(last_both_fence, __threadfence(), , atomicAdd(count, 1), __threadfence(), plain)
LAST(last_one_fence, , __threadfence(), atomicAdd(count, 1), __threadfence(), plain)
LAST(last_inc, __threadfence(), , atomicInc(count, 100), __threadfence(), plain)
LAST(last_system, __threadfence_system(), , atomicAdd_system(count, 1), __threadfence_system(), plain)
LAST(last_acq_rel, , , add_acq_rel(count), , plain)
LAST(last_bypass, , __threadfence(), atomicAdd(count, 1), __threadfence(), __ldcg)

LAST(wrong_last_no_fence, , , atomicAdd(count, 1), , plain)
LAST(wrong_last_block_fence, __threadfence_block(), , atomicAdd(count, 1), __threadfence_block(), plain)
LAST(wrong_last_block_atomic, __threadfence(), , atomicAdd_block(count, 1), __threadfence(), plain)
LAST(wrong_last_volatile_count, __threadfence(), , add_volatile(count), __threadfence(), plain)
LAST(wrong_last_relaxed_count, __threadfence(), , add_relaxed(count), __threadfence(), plain)
LAST(wrong_last_constant_cache, __threadfence(), , atomicAdd(count, 1), __threadfence(), __ldg)
LAST(wrong_last_weak_look, __threadfence(), , add_and_look(count), __threadfence(), plain)

// ---- all CTAs wait for each other
#define BARRIER(name, BEFORE, ADD, LOOK, AFTER)                             \
  KERNEL(name) {                                                            \
    part[AT] = in[AT];                                                      \
    __syncthreads();                                                        \
    if (threadIdx.x == 0) {                                                 \
      BEFORE;                                                               \
      ADD;                                                                  \
      while (LOOK < gridDim.x) {}                                           \
      AFTER;                                                                \
    }                                                                       \
    __syncthreads();                                                        \
    out[AT] = part[(AT + 64) % (gridDim.x * 64)];                           \
  }
BARRIER(barrier_volatile, __threadfence(), atomicAdd(count, 1), load_volatile(count), __threadfence())
BARRIER(barrier_atomic, __threadfence(), atomicAdd(count, 1), atomicAdd(count, 0), __threadfence())
BARRIER(barrier_acquire, , add_acq_rel(count), load_acquire(count), )
BARRIER(wrong_barrier_unfenced_look, __threadfence(), atomicAdd(count, 1), load_volatile(count), )
BARRIER(wrong_barrier_narrow_look, , add_acq_rel(count), load_acquire_cta(count), )
BARRIER(wrong_barrier_block_fence, __threadfence(), atomicAdd(count, 1), load_volatile(count), __threadfence_block())

// ---- every CTA adds to the sum of the one before it
#define CHAIN(name, BEFORE, STORE, LOAD, AFTER)                                      \
  KERNEL(name) {                                                                     \
    float sum = in[AT];                                                              \
    if (blockIdx.x) {                                                                \
      if (threadIdx.x == 0)                                                          \
        while (!LOAD(&count[blockIdx.x - 1])) {}                                     \
      __syncthreads();                                                               \
      AFTER;                                                                         \
      sum += part[AT - 64];                                                          \
    }                                                                                \
    part[AT] = out[AT] = sum;                                                        \
    BEFORE;                                                                          \
    __syncthreads();                                                                 \
    if (threadIdx.x == 0) STORE(&count[blockIdx.x], 1);                              \
  }
CHAIN(chain_release, , store_release, load_acquire, )
CHAIN(chain_volatile, __threadfence(), store_volatile, load_volatile, __threadfence())
CHAIN(chain_relaxed, __threadfence(), store_relaxed, load_relaxed, __threadfence())
CHAIN(chain_exchange, __threadfence(), atomicExch, load_volatile, __threadfence())
CHAIN(wrong_chain_narrow_release, , store_release_cta, load_acquire, )
CHAIN(wrong_chain_narrow_acquire, , store_release, load_acquire_cta, )
CHAIN(wrong_chain_unfenced_store, , store_volatile, load_volatile, __threadfence())
CHAIN(wrong_chain_unfenced_load, __threadfence(), store_volatile, load_volatile, )
CHAIN(wrong_chain_relaxed, , store_relaxed, load_relaxed, )

KERNEL(chain_packed) {  // the value travels in the word of the flag: nothing else is handed over
  unsigned long long *word = (unsigned long long *)count;
  if (threadIdx.x) return;
  unsigned long long before = 0;
  if (blockIdx.x)
    while (!((before = *(volatile unsigned long long *)&word[blockIdx.x - 1]) >> 32 == 7)) {}
  const unsigned sum = unsigned(before) + unsigned(in[blockIdx.x * 64]);
  *(volatile unsigned long long *)&word[blockIdx.x] = 7ull << 32 | sum;
  out[blockIdx.x] = sum;
}
KERNEL(turns) {  // CTAs take turns, by the value of one word
  if (threadIdx.x == 0)
    while (load_acquire(count) != blockIdx.x) {}
  __syncthreads();
  part[threadIdx.x] = blockIdx.x ? part[threadIdx.x] + in[AT] : in[AT];
  out[AT] = part[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) store_release(count, blockIdx.x + 1);
}
KERNEL(lock) {  // a word guarded by a spin lock
  if (threadIdx.x == 0) {
    while (atomicCAS(&count[0], 0, 1)) {}
    __threadfence();
    count[1] += unsigned(in[AT]);
    __threadfence();
    atomicExch(&count[0], 0);
    if (atomicAdd(&count[2], 1) == gridDim.x - 1) {
      while (atomicCAS(&count[0], 0, 1)) {}
      __threadfence();
      out[0] = float(count[1]);
    }
  }
}
KERNEL(wrong_lock) {
  if (threadIdx.x == 0) {
    while (atomicCAS(&count[0], 0, 1)) {}
    count[1] += unsigned(in[AT]);
    atomicExch(&count[0], 0);
    out[blockIdx.x] = 0;
  }
}
KERNEL(block_atomics) {
  __shared__ unsigned n;
  if (threadIdx.x == 0) n = 0;
  __syncthreads();
  atomicAdd_block(&n, unsigned(in[AT]));
  atomicAdd_block(&count[blockIdx.x], 1);
  atomicMax_block(&count[8 + blockIdx.x], threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = float(n + count[blockIdx.x] + count[8 + blockIdx.x]);
}
#define WARPS(name, BEFORE, AFTER)                                   \
  KERNEL(name) {                                                     \
    __shared__ float given[32];                                      \
    __shared__ volatile unsigned flag;                               \
    if (threadIdx.x == 0) flag = 0;                                  \
    __syncthreads();                                                 \
    if (threadIdx.x < 32) {                                          \
      given[threadIdx.x] = in[AT], part[AT] = in[AT];                \
      BEFORE;                                                        \
      __syncwarp();                                                  \
      if (threadIdx.x == 0) flag = 1;                                \
    } else {                                                         \
      while (!flag) {}                                               \
      AFTER;                                                         \
      out[AT - 32] = given[threadIdx.x - 32] + part[AT - 32];        \
    }                                                                \
  }
WARPS(warps_block_fence, __threadfence_block(), __threadfence_block())
WARPS(warps_unequal_fences, __threadfence(), __threadfence_block())
WARPS(wrong_warps_unfenced, , __threadfence_block())
KERNEL(wrong_shared_volatile_count) {
  __shared__ volatile unsigned n;
  if (threadIdx.x == 0) n = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) n = n + 1;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = float(n);
}
KERNEL(wrong_shared_weak_read) {
  __shared__ unsigned n;
  if (threadIdx.x == 0) n = 0;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&n, 1);
  if (threadIdx.x == 32) out[blockIdx.x] = float(n);
}

// ---- copies by cp.async, counted by an mbarrier or kept in groups
__device__ unsigned shared_at(const void *p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void wait_for(const uint64_t *barrier) {
  asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0; @!done bra again; }"
               ::"r"(shared_at(barrier)) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ void wait_for_groups() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
#define LANDED(name, BEFORE, AFTER)                                                                          \
  KERNEL(name) {                                                                                             \
    __shared__ float given[64];                                                                              \
    __shared__ uint64_t landed;                                                                              \
    if (threadIdx.x == 0)                                                                                    \
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(shared_at(&landed)) : "memory");          \
    __syncthreads();                                                                                         \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"                                                  \
                 ::"r"(shared_at(given + threadIdx.x)), "l"(__cvta_generic_to_global(in + AT)) : "memory");  \
    BEFORE;                                                                                                  \
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(&landed)) : "memory"); \
    AFTER;                                                                                                   \
    out[AT ^ 63] = given[threadIdx.x ^ 63];                                                                  \
  }
LANDED(landed_counted, , wait_for(&landed))
LANDED(landed_in_group, commit(), (wait_for_groups(), __syncthreads()))
LANDED(wrong_landed_uncommitted, , (wait_for_groups(), __syncthreads()))
LANDED(wrong_landed_unawaited, , __syncthreads())

// ---- a compare-and-swap that begins with a plain read
using uint16_t = unsigned short;
__device__ float total(unsigned *p) { return __uint_as_float(atomicAdd(p, 0)); }
#define SWAP(name, ADD, TOTAL)                                          \
  KERNEL(name) {                                                        \
    __shared__ bool last;                                               \
    ADD(count + 2, in[AT]);                                             \
    __threadfence();                                                    \
    __syncthreads();                                                    \
    if (threadIdx.x == 0) last = atomicAdd(count, 1) == gridDim.x - 1;  \
    __syncthreads();                                                    \
    if (last) out[threadIdx.x] = TOTAL(count + 2);                      \
  }
__device__ void swap_float(unsigned *p, float v) {
  unsigned old = *p, expected;
  do {
    expected = old;
    old = atomicCAS(p, expected, __float_as_uint(__uint_as_float(expected) + v));
  } while (old != expected);
}
__device__ void swap_largest(unsigned *p, float v) {
  unsigned old = p[1];
  for (;;) {
    const unsigned found = atomicCAS(p + 1, old, __float_as_uint(fmaxf(v, __uint_as_float(old))));
    if (found == old) break;
    old = found;
  }
}
__device__ void swap_double(unsigned *p, float v) {
  unsigned long long *word = (unsigned long long *)p, old = *word, expected;
  do {
    expected = old;
    old = atomicCAS(word, expected, __double_as_longlong(v + __longlong_as_double(expected)));
  } while (expected != old);
}
__device__ void swap_upper_half(unsigned *p, float v) {  // a count in 16 bits, by a swap of its word
  uint16_t *half = (uint16_t *)p + 1;
  unsigned *word = (unsigned *)((char *)half - ((size_t)half & 2));
  unsigned old = *word, expected;
  do {
    expected = old;
    old = atomicCAS(word, expected, (old & 0xffff) | ((old >> 16) + unsigned(v)) << 16);
  } while (expected != old);
}
__device__ void swap_if_larger(unsigned *p, float v) {  // the value that was found is used where it was right
  const unsigned old = *p;
  const bool same = atomicCAS(p, old, old + unsigned(v)) == old;
  if (same) atomicAdd(p + 8, old);
  else atomicAdd(p, unsigned(v));
}
__device__ void swap_rereads(unsigned *p, float v) {
  unsigned old;
  do old = *p;
  while (atomicCAS(p, old, old + unsigned(v)) != old);
}
__device__ float total_double(unsigned *p) { return float(__longlong_as_double(atomicAdd((unsigned long long *)p, 0))); }
__device__ float total_upper(unsigned *p) { return float(atomicAdd(p, 0) >> 16); }
__device__ float total_count(unsigned *p) { return float(atomicAdd(p, 0)); }
__device__ float largest(unsigned *p) { return total(p + 1); }
SWAP(swap_adds, swap_float, total)
SWAP(swap_max, swap_largest, largest)
SWAP(swap_adds_double, swap_double, total_double)
SWAP(swap_adds_half, swap_upper_half, total_upper)
SWAP(swap_adds_reread, swap_rereads, total_count)
SWAP(swap_adds_once, swap_if_larger, total_count)
KERNEL(swap_walks) {  // the address moves on between the loops
  unsigned *p = count;
  for (int k = 0; k < 4; k++, p += 2) swap_float(p, in[AT]);
  if (blockIdx.x == 0) out[threadIdx.x] = 0;
}
KERNEL(shared_swap) {
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  swap_float(&sum, in[AT]);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = __uint_as_float(sum);
}

__device__ void kept(unsigned *p, float v) {  // its value is used although the swap may have failed
  const unsigned old = *p;
  atomicCAS(p, old, old + unsigned(v));
  atomicMax(p + 8, old);
}
__device__ void stale(unsigned *p, float v) {  // what is put was computed from the first value
  unsigned old = *p, found;
  const unsigned sum = old + unsigned(v);
  while ((found = atomicCAS(p, old, sum)) != old) old = found;
}
__device__ void gives_up(unsigned *p, float v) {  // the plain read decides whether there is a swap
  unsigned old = *p, found;
  while (__uint_as_float(old) < v && (found = atomicCAS(p, old, __float_as_uint(v))) != old) old = found;
}
__device__ void other_word(unsigned *p, float v) {  // the word that is read is not the one that is swapped
  unsigned old = p[1], found;
  atomicAdd(p + 1, 1);
  while ((found = atomicCAS(p, old, old + unsigned(v))) != old) old = found;
}
__device__ void blind(unsigned *p, float v) {  // what is expected is a constant
  const unsigned old = *p;
  atomicCAS(p, 0, old + unsigned(v));
}
__device__ void plain_loop(unsigned *p, float v) {  // others write the word plainly
  swap_float(p, v);
  if (v == 30) *p = 0;
}
__device__ void looks_again(unsigned *p, float v) {  // each turn reads plainly, and the last one counts
  unsigned old;
  do old = *p;
  while (atomicCAS(p, old, old + unsigned(v)) != old && old < 100000);
}
SWAP(wrong_swap_kept, kept, total_count)
SWAP(wrong_swap_stale, stale, total_count)
SWAP(wrong_swap_gives_up, gives_up, total)
SWAP(wrong_swap_other_word, other_word, total_count)
SWAP(wrong_swap_blind, blind, total_count)
SWAP(wrong_swap_plain_loop, plain_loop, total)
SWAP(wrong_swap_looks_again, looks_again, total_count)
KERNEL(wrong_shared_swap_kept) {
  __shared__ unsigned sum[16];
  if (threadIdx.x < 16) sum[threadIdx.x] = 0;
  __syncthreads();
  kept(sum, in[AT]);
  out[AT] = 0;
}

// ---- clusters of two CTAs
__device__ uint32_t there(void *p) {  // the same place in the other CTA
  uint32_t rank, at = uint32_t(__cvta_generic_to_shared(p)), other;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(at), "r"(rank ^ 1));
  return other;
}
__device__ void put(uint32_t at, float v) { asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory"); }
__device__ float get(uint32_t at) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
  return v;
}
__device__ void arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ void arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ void await() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
#define PUT(name, BEFORE)                 \
  CLUSTER(name) {                         \
    __shared__ float given[64];           \
    BEFORE;                               \
    put(there(&given[threadIdx.x]), in[AT]); \
    arrive(), await();                    \
    out[AT] = given[threadIdx.x];         \
  }
PUT(cluster_put, (arrive(), await()))
PUT(cluster_put_relaxed, (arrive_relaxed(), await()))
PUT(wrong_cluster_put_early, )
PUT(wrong_cluster_put_block_barrier, __syncthreads())
#define GET(name, AFTER)                          \
  CLUSTER(name) {                                 \
    __shared__ float given[64];                   \
    given[threadIdx.x] = in[AT];                  \
    arrive(), await();                            \
    out[AT] = get(there(&given[threadIdx.x]));    \
    AFTER;                                        \
  }
GET(cluster_get, (arrive(), await()))
GET(cluster_get_relaxed, (arrive_relaxed(), await()))
GET(wrong_cluster_get_late, )
GET(wrong_cluster_get_block_barrier, __syncthreads())
#define COUNT(name, SCOPE)                                                                    \
  CLUSTER(name) {                                                                             \
    __shared__ unsigned n;                                                                    \
    if (threadIdx.x == 0) n = 0;                                                              \
    arrive(), await();                                                                        \
    asm volatile("red.relaxed." SCOPE ".shared::cluster.add.u32 [%0], 1;" ::"r"(there(&n)) : "memory"); \
    atomicAdd(&n, 1);                                                                         \
    arrive(), await();                                                                        \
    if (threadIdx.x == 0) out[blockIdx.x] = float(n);                                         \
  }
COUNT(cluster_count, "cluster")
COUNT(wrong_cluster_count_narrow, "cta")

// ---- the async proxy
__device__ uint32_t shared(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ void bulk_store(void *to, const void *from, unsigned nbytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared(from)), "r"(nbytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ void bulk_load(void *to, const void *from, unsigned nbytes, uint64_t *bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(bar)), "r"(nbytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared(to)),
               "l"(from), "r"(nbytes), "r"(shared(bar)) : "memory");
}
__device__ void bulk_wait(uint64_t *bar) {
  unsigned done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(shared(bar)) : "memory");
}
__device__ void bar_init(uint64_t *bar) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(shared(bar)) : "memory");
}
#define FENCE(space) asm volatile("fence.proxy.async" space ";" ::: "memory")
#define STORED(n, read) asm volatile("cp.async.bulk.wait_group" read " " #n ";" ::: "memory")
#define OUT(name, FENCED, REUSE)                           \
  KERNEL(name) {                                           \
    __shared__ alignas(128) float rows[64];                \
    rows[threadIdx.x] = in[AT];                            \
    FENCED;                                                \
    __syncthreads();                                       \
    if (threadIdx.x == 0) bulk_store(&out[AT], rows, 256); \
    REUSE;                                                 \
  }
OUT(bulk_out, FENCE(), if (threadIdx.x == 0) STORED(0, ""))
OUT(bulk_out_read, FENCE(".shared::cta"), if (threadIdx.x == 0) STORED(0, ".read"))
OUT(bulk_out_reuse, FENCE(), if (threadIdx.x == 0) STORED(0, ".read"); __syncthreads(); rows[threadIdx.x] = 9)
OUT(bulk_out_read_back, FENCE(), if (threadIdx.x == 0) { STORED(0, ""); out[AT] += 1; out[AT] -= 1; })
OUT(wrong_bulk_out_unfenced, , if (threadIdx.x == 0) STORED(0, ""))
OUT(wrong_bulk_out_other_space, FENCE(".global"), if (threadIdx.x == 0) STORED(0, ""))
OUT(wrong_bulk_out_no_wait, FENCE(), )
OUT(wrong_bulk_out_reuse, FENCE(), __syncthreads(); rows[threadIdx.x] = 9; __syncthreads(); if (threadIdx.x == 0) STORED(0, ".read"))
OUT(wrong_bulk_out_read_back, FENCE(), if (threadIdx.x == 0) { STORED(0, ".read"); out[AT] += 1; out[AT] -= 1; })
OUT(wrong_bulk_out_overwrite, FENCE(), if (threadIdx.x == 0) { STORED(0, ".read"); out[AT] = in[AT]; })

#define BACK(name, FENCED, LATER)                                     \
  KERNEL(name) {                                                      \
    __shared__ alignas(128) float rows[64];                           \
    __shared__ uint64_t bar;                                          \
    if (threadIdx.x == 0) bar_init(&bar);                             \
    part[AT] = in[AT];                                                \
    FENCED;                                                           \
    __syncthreads();                                                  \
    if (threadIdx.x == 0) {                                           \
      LATER;                                                          \
      bulk_load(rows, &part[AT], 256, &bar);                          \
    }                                                                 \
    bulk_wait(&bar);                                                  \
    out[AT] = rows[threadIdx.x];                                      \
  }
BACK(bulk_back, FENCE(), )
BACK(bulk_back_global, FENCE(".global"), )
BACK(bulk_back_later, , FENCE())
BACK(wrong_bulk_back, , )
BACK(wrong_bulk_back_block_fence, __threadfence(), )
BACK(wrong_bulk_back_other_space, FENCE(".shared::cta"), )

#define PASS(name, FENCED, LATER)                                                   \
  KERNEL(name) {                                                                    \
    __shared__ alignas(128) float rows[64];                                         \
    __shared__ uint64_t bar;                                                        \
    if (threadIdx.x == 0) bar_init(&bar);                                           \
    part[AT] = in[AT];                                                              \
    FENCED;                                                                         \
    __syncthreads();                                                                \
    if (threadIdx.x == 0) {                                                         \
      __threadfence();                                                              \
      atomicAdd(count, 1);                                                          \
      while (load_volatile(count) < gridDim.x) {}                                   \
      __threadfence();                                                              \
      LATER;                                                                        \
      bulk_load(rows, &part[(AT + 64) % (gridDim.x * 64)], 256, &bar);              \
    }                                                                               \
    bulk_wait(&bar);                                                                \
    out[AT] = rows[threadIdx.x];                                                    \
  }
PASS(bulk_pass, FENCE(), )
PASS(bulk_pass_later, , FENCE(".global"))
PASS(wrong_bulk_pass, , )
PASS(wrong_bulk_pass_other_space, FENCE(".shared::cta"), FENCE(".shared::cta"))
