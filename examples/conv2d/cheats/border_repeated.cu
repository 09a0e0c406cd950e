// Beyond the left border the first column is repeated
// expect: row error
// instead of: column >= 0 && column < width;
// there is: column < width; column = max(column, 0);
