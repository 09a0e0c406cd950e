// Nothing is wrong: parts are added up from the last
// expect: GREEN
// problem: 5,72,512
// point: depth_warps=1 split=2 stages=3
// instead of: float sum = of_tile[i];
// there is: float sum = of_tile[(kSplit - 1) * kTile + i];
// instead of: sum += of_tile[other * kTile + i];
// there is: sum += of_tile[(kSplit - 1 - other) * kTile + i];
