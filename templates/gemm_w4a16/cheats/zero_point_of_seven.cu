// Where no zero points are given 7 is taken off, not 8
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: return {0x64086408u, 0xd480d480u};
// there is: return {0x64076407u, 0xd470d470u};
