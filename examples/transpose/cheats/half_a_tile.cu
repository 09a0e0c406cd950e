// The second half of each tile is not written
// expect: NaN in the output, row error
// instead of number 2: i < tile;
// there is: i < tile / 2;
