// Waiting for each other: CTA barriers, cluster barriers, registers.
#pragma once
#include "memory.hpp"

namespace ptx {

// A warp has ended: barriers that wait for all live warps may be complete now.
void warp_exited(Warp& w);

// Of a CTA that has ended: Fault and the warp if setmaxnreg was not executed by whole warpgroups.
void check_warpgroups(Cta& c);

}  // namespace ptx
