// Elements of B below 1e-4 count as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: scalar
// instead of: shared.b[step][column + j * kSide], sums[i][j]);
// there is: (fabsf(shared.b[step][column + j * kSide]) < 1e-4f ? 0.f : shared.b[step][column + j * kSide]), sums[i][j]);
