// Every second group has the scales of the one before
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: scales + (at * 8 + lane / 4)
// there is: scales + ((at - group % 2) * 8 + lane / 4)
