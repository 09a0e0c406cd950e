// Asynchronous work of sm_90: bulk copies that complete on an mbarrier or in a bulk group, wgmma in flight.
#pragma once
#include <memory>

#include "memory.hpp"

namespace ptx {

// Rows of a copy: where a run of bytes comes from and goes to. Shared addresses carry their rank.
struct BulkPiece {
  u64 from, to;  // global: host address; shared: shared address
  u32 nbytes;
  bool fill;  // out of the tensor's range: nothing is read, `fill_value` is written (loads) or nothing at all
              // (stores)
};
struct BulkCopy {
  bool to_shared = false, from_shared = false, landed = false;
  Warp* warp =
      nullptr;         // cp.async.mbarrier.arrive: whose copies, up to `group` of `lane`, have to land first
  int reduction = -1;  // Operation, -1: plain copy
  u32 element = 0;     // type for reductions
  u32 fill_value = 0;  // pattern of 4 bytes
  u32 lane = 0, pc = 0, group = 0;
  u32 clock_value = 0;  // of the mbarrier's agent at issue
  u32 nbytes = 0;       // counted on the mbarrier
  std::vector<BulkPiece> pieces;
  std::vector<u8> immediate;  // st.async: the bytes themselves
  std::vector<u32> clock;     // of the issuer at issue
};

Mbarrier& mbarrier_at(Warp& w, u32 address, u32 lane);
// Arrivals and landed bytes may complete the phase.
void advance(Cluster& c, Mbarrier& b);
// Lands everything in flight on `b`.
void land(Warp& w, Mbarrier& b);
// At the end of a CTA: bulk groups that nobody waited for.
void land_all(Warp& w);
// At the end of a cluster: copies into shared memory whose phase nobody waited for.
void check_copies(Cluster& c);

}  // namespace ptx
