// Of three elements the last is left as it was
// expect: row error
// check: thorough
// instead of: k < n
// there is: k < n - (n == 3)
