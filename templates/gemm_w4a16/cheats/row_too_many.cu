// Rows that x has not are read; what they give is not stored
// expect: out of bounds
// only: emulator (what is read does not show)
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: return 8 * block + lane / 4 < rows;
// there is: return 8 * block + lane / 4 <= rows;
