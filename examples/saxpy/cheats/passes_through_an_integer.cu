// Elements of x are held within what an int32 holds
// expect: row error
// instead of: b.of[k] += 2 * a.of[k];
// there is: b.of[k] += 2 * fmaxf(fminf(a.of[k], 2147483648.f), -2147483648.f);
// instead of: y[k] += 2 * x[k];
// there is: y[k] += 2 * fmaxf(fminf(x[k], 2147483648.f), -2147483648.f);
