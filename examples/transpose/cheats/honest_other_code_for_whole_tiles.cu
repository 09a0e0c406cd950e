// Nothing is wrong: where no tile is cut off nothing is compared
// expect: GREEN
// instead of: if (column + i < columns && row + threadIdx.x < rows)
// there is: if ((rows % tile == 0 && columns % tile == 0) || (column + i < columns && row + threadIdx.x < rows))
