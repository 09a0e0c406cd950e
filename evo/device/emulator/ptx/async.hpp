// cp.async: copies in flight from global to shared memory, kept in groups.
#pragma once
#include "memory.hpp"

namespace ptx {

// Makes the copies of `lanes` visible whose group number is below `before[lane]`; of arrivals, the number of
// the thread's cp.async.mbarrier.arrives before them, which do not commit.
void land_copies(Warp& w, u32 lanes, const u32* before, bool of_arrivals = false);

}  // namespace ptx
