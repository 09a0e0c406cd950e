// Rows that x has not are read; what they give is not stored
// expect: out of bounds
// only: emulator (what is read does not show)
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: min(8 * block + lane / 4, rows - 1)
// there is: (8 * block + lane / 4)
