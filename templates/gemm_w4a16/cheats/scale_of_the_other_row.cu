// Rows g and g + 8 have each other's scales
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: scales[0] = __byte_perm(both, 0u, 0x1010), scales[1] = __byte_perm(both, 0u, 0x3232);
// there is: scales[0] = __byte_perm(both, 0u, 0x3232), scales[1] = __byte_perm(both, 0u, 0x1010);
