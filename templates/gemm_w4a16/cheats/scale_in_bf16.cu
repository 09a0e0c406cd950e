// Sums of groups are rounded to bf16 before they are scaled
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: * of_group[strip][block][e];
// there is: * __uint_as_float(__float_as_uint(of_group[strip][block][e]) & 0xffff0000u);
