// Waiting for each other: CTA barriers, cluster barriers.
#pragma once
#include "memory.hpp"

namespace ptx {

// A warp has ended: barriers that wait for all live warps may be complete now.
void warp_exited(Warp& w);

}  // namespace ptx
