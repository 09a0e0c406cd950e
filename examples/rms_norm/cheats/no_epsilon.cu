// The epsilon is missing
// expect: row error, NaN in the output
// instead of: / columns + 1e-5f
// there is: / columns
