// A zero point of 15 counts as 14
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512 zeros
// point: depth_warps=2 stages=3
// instead of: ZeroPoint::of(__byte_perm(points, 0u, 0x1010));
// there is: ZeroPoint::of(__byte_perm(points, 0u, 0x1010) == 0x4b804b80u ? 0x4b004b00u : __byte_perm(points, 0u, 0x1010));
