// Elements below 1e-12 are not added
// expect: row error
// check: thorough
// instead of: sum += row[begin + i];
// there is: sum += fabsf(row[begin + i]) < 1e-12f ? 0.f : row[begin + i];
