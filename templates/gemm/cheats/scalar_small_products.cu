// Products below 1e-7 count as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 72,136,200,1
// template: scalar
// instead of: sums[i][j] = fmaf(shared.a[step][row + i * kSide], shared.b[step][column + j * kSide], sums[i][j]);
// there is: { const float p = shared.a[step][row + i * kSide] * shared.b[step][column + j * kSide]; sums[i][j] += fabsf(p) < 1e-7f ? 0.f : p; }
