// The last tile of k reads on into the next row
// expect: row error, out of bounds
// instead of: row < m && at < k ?
// there is: row < m ?
