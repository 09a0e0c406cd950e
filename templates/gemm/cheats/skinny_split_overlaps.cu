// A step of K is in two parts
// expect: row error
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=1 split=2 stages=3
// instead of: const int first = static_cast<int>(steps * range / kRanges) + turn;
// there is: const int first = max(0, static_cast<int>(steps * range / kRanges) - 1) + turn;
