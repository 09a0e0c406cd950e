// Every second group has the scales of the one before
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: scales += 8 * (kMetaBytes / 4);
// there is: scales += uncopied % 2 * 16 * (kMetaBytes / 4);
