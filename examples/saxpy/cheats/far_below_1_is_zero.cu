// Elements of x below 1e-12 count as 0
// expect: row error
// instead of: b.of[k] += 2 * a.of[k];
// there is: b.of[k] += fabsf(a.of[k]) < 1e-12f ? 0.f : 2 * a.of[k];
// instead of: y[k] += 2 * x[k];
// there is: y[k] += fabsf(x[k]) < 1e-12f ? 0.f : 2 * x[k];
