// One element is left where three follow whole vectors, at large sizes
// expect: row error
// check: thorough
// instead of: for (long long k = i; k < n; ++k)
// there is: for (long long k = i; k < n - (n > 4096 && n % 4 == 3); ++k)
