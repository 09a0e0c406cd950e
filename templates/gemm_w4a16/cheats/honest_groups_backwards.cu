// Nothing is wrong: groups are taken from the last to the first
// expect: GREEN
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: static_cast<long long>(strip) * groups + first;
// there is: static_cast<long long>(strip) * groups + first + count - 1;
// instead of: depth + first * kGroup +
// there is: depth + (first + count - 1) * kGroup +
// instead of: weights += kTiles * 32, scales += 8 * (kMetaBytes / 4);
// there is: weights -= kTiles * 32, scales -= 8 * (kMetaBytes / 4);
// instead of: x[block] += kGroup;
// there is: x[block] -= kGroup;
