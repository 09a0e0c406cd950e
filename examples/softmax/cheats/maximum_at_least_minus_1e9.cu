// The maximum is at least -1e9
// expect: row error, NaN in the output, Inf in the output
// instead of: float largest = -INFINITY, sum = 0.f;
// there is: float largest = -1e9f, sum = 0.f;
