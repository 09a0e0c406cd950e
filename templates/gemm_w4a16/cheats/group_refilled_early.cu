// The ring is filled again where the group lies that is multiplied next
// expect: race, row error
// on a GPU: row error
// problem: 5,72,1024
// point: depth_warps=2 stages=3
// instead of: at.copy();  // where the group before lay, which the lane has read
// there is: at.copy(), at.copy();
