// Where no tile is cut off the fifth row of each is the one before
// expect: row error
// instead of: = part[threadIdx.x][i];
// there is: = part[threadIdx.x][rows % tile == 0 && columns % tile == 0 && i == 4 ? 3 : i];
