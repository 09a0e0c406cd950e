// From the fourth matrix on all have its B
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 40,40,72,6
// template: scalar
// instead of: b += static_cast<long long>(matrix)
// there is: b += static_cast<long long>(min(matrix, 3))
