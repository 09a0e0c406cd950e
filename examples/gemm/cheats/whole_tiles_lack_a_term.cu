// Where no tile is cut off the last term is left out
// expect: row error
// instead of: float sums[each_m][each_n] = {};
// there is: float sums[each_m][each_n] = {}; if (m % tile_m == 0 && n % tile_n == 0 && k % tile_k == 0) --k;
