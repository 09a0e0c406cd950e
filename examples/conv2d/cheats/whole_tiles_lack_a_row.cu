// Where no tile is cut off the last row of the image counts as 0
// expect: row error
// instead of: row >= 0 && row < height &&
// there is: row >= 0 && row < height - (height % kRows == 0 && width % block_size_x == 0) &&
