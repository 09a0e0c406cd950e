// Codes are taken as -8 to 7, where 8 and more are negative
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: codes_as_operand(a, codes, zeros
// there is: codes_as_operand(a, codes ^ 0x88888888u, zeros
