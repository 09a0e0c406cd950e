// Squares are added in half
// expect: row error, element error, Inf in the output, NaN in the output
// instead of: float sum = 0.f;
// there is: element sum = 0.f;
