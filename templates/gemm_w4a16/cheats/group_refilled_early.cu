// The ring is filled again where the next group lies
// expect: race, row error
// on a GPU: row error
// problem: 5,72,1024
// point: depth_warps=2 stages=3
// instead of: at.copy(index + kStages - 1);
// there is: at.copy(index + kStages);
