// The upper halo holds the row itself
// expect: row error
// instead of: plane[0][j] = x[at - width];
// there is: plane[0][j] = x[at];
