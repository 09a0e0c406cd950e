// The largest code is one too small, as where a zero point was packed with it
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: constexpr u32 kLower = 0x000f000fu
// there is: constexpr u32 kLower = 0x000e000fu
