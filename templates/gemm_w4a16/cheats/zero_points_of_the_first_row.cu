// Rows g + 8 have the zero points of rows g
// expect: row error
// problem: 5,72,512 zeros
// point: depth_warps=2 stages=3
// instead of: zeros[1] = ZeroPoint::of(__byte_perm(points, 0u, 0x3232));
// there is: zeros[1] = ZeroPoint::of(__byte_perm(points, 0u, 0x1010));
