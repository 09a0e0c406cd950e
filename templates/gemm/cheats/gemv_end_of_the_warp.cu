// A warp walks on to the end of K
// expect: row error
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of: const int end = min(k, static_cast<int>(accesses * (part + 1) / (kSplit * kDepthWarps) * kAccess));
// there is: const int end = k;
