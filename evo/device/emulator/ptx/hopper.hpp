// Asynchronous work of sm_90: bulk copies that complete on an mbarrier or in a bulk group, wgmma in flight.
#pragma once
#include <memory>

#include "memory.hpp"

namespace ptx {

// A run of bytes of a copy: where it comes from and where it goes. Shared addresses carry their rank.
struct BulkPiece {
  u64 from, to;  // global: host address; shared: shared address
  u32 nbytes;
  // The run lies outside the tensor. A load writes `fill_value` and reads nothing. A store does nothing.
  bool fill;
};
struct BulkCopy {
  bool to_shared = false, from_shared = false, landed = false;
  bool source_read = false;  // of a bulk store: it does not need its source any more
  // Of cp.async.mbarrier.arrive only: the warp whose copies, up to `group` of `lane`, have to land first.
  Warp* warp = nullptr;
  int reduction = -1;  // Operation, -1: plain copy
  u32 element = 0;     // type for reductions
  u32 fill_value = 0;  // pattern of 4 bytes
  u32 lane = 0, pc = 0, group = 0;
  u32 agent = 0;        // that a bulk store counts as
  u32 clock_value = 0;  // of that, or of the mbarrier's agent, at issue
  u32 nbytes = 0;       // counted on the mbarrier
  std::vector<BulkPiece> pieces;
  std::vector<u8> immediate;  // st.async: the bytes themselves
  std::vector<u32> clock;     // of the issuer at issue
};

Mbarrier& mbarrier_at(Warp& w, u32 address, u32 lane);
// An arrival or landed bytes may have completed the phase: then the next one begins.
void advance(Cluster& c, Mbarrier& b);
// Lands everything in flight on `b`.
void land(Warp& w, Mbarrier& b);
// At the end of a warp: bulk groups without a wait.
void land_all(Warp& w);
// At the end of a cluster: copies into shared memory without a wait for their phase.
void check_copies(Cluster& c);

}  // namespace ptx
