// Where warps wait for each other: CTA barriers, cluster barriers, registers.
#pragma once
#include "memory.hpp"

namespace ptx {

// A warp has ended: barriers that wait for all live warps may be complete now.
void warp_exited(Warp& w);

// Checks a CTA that has ended. Throws a Fault and its warp if a part of a warpgroup has not executed a
// setmaxnreg.
void check_warpgroups(Cta& c);

}  // namespace ptx
