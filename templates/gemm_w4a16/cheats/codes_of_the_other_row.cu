// The nibbles of each byte are exchanged: rows g and g + 8
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: const u32 late = codes >> 8;
// there is: codes = (codes & 0x0f0f0f0fu) << 4 | (codes >> 4 & 0x0f0f0f0fu); const u32 late = codes >> 8;
