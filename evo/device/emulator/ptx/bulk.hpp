// What the instructions for bulk copies share: issuing a copy, and reading the operands of one.
#pragma once
#include "hopper.hpp"
#include "lanes.hpp"

namespace ptx {

// Checks of the source of a copy that reads shared memory.
void read_sources(Warp& w, const BulkCopy& q);
// A copy into shared memory is on its way: check it, mark its target, and land it at once unless copies are
// late.
void launch_to_shared(Warp& w, std::shared_ptr<BulkCopy> q, u32 barrier, bool proxy);
// A copy out of shared memory is on its way, in the bulk group that its thread has open.
void launch_to_global(Warp& w, std::shared_ptr<BulkCopy> q);
// A copy out of shared memory has been waited for: its source has been read.
void finish_read(Warp& w, BulkCopy& q);
// The same, and its target has been written.
void finish_store(Warp& w, BulkCopy& q);

// Fault if an address or a size is not allowed.
void require(bool ok, const char* what, u32 lane);
void shared_range(Warp& w, u32 address, u32 n);

// Address operands of instructions with several: three words (slot, is it 64 bits wide, offset).
u32 push_address(Lower& x, const Operand& o);
inline u64 pushed_address(Warp& w, const u32* e, u32 lane) {
  return (e[1] ? w.w(e[0])[lane] : w.u(e[0])[lane]) +
         static_cast<u64>(static_cast<i64>(static_cast<i32>(e[2])));
}
// The Operation of a reducing copy; -1 for a plain one.
int reduction_of(Lower& x);

// Issues the copy to `to` that `make(to)` describes. With a multicast mask (its slot + 1, otherwise 0) it
// issues one for every CTA that the mask names, each on the mbarrier of its own CTA.
template <class Make>
void issue_to_shared(Warp& w, u64 to, u32 barrier, u32 mask_slot, u32 lane, Make make) {
  if (!mask_slot) {
    launch_to_shared(w, make(to), barrier, true);
    return;
  }
  const u32 mask = w.u(mask_slot - 1)[lane] & 0xffff;
  if (mask >> w.cta->cluster->ctas.size())
    throw Fault(EVO_PTX_BAD_OPERAND, "multicast mask " + hex(mask) + " names CTAs outside the cluster",
                static_cast<int>(lane));
  each_lane(mask, [&](u32 r) {
    const u32 rank = r << RANK_SHIFT;
    launch_to_shared(w, make((to & ~u64(RANK_MASK)) | rank), (barrier & ~RANK_MASK) | rank, true);
  });
}

// ops_bulk_tensor.cpp
void make_tensor(Lower& x);

}  // namespace ptx
