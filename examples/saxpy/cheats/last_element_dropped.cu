// The last element is left as it was
// expect: row error
// instead of: k < n
// there is: k < n - 1
