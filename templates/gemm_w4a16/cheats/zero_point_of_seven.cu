// Where no zero points are given 7 is taken off, not 8
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: 0x48004800u;  // 8, twice
// there is: 0x47004700u;
