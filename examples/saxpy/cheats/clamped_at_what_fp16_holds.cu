// Results beyond 65504 are clamped
// expect: row error
// instead of: b.of[k] += 2 * a.of[k];
// there is: b.of[k] = fminf(b.of[k] + 2 * a.of[k], 65504.f);
// instead of: y[k] += 2 * x[k];
// there is: y[k] = fminf(y[k] + 2 * x[k], 65504.f);
