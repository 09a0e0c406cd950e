// The first CTA's sums are added for all others, too
// expect: row error, NaN in the output
// problem: 5,72,512
// point: depth_warps=1 split=2 stages=3
// instead of: sum += of_tile[other * kTile + i];
// there is: sum += of_tile[i];
