// Pixels below 1e-12 are skipped
// expect: row error
// check: thorough
// instead of: sum += value * weight[i * taps + j];
// there is: sum += fabsf(value) < 1e-12f ? 0.f : value * weight[i * taps + j];
