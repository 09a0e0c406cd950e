// Of eight whole tiles the last element is one too large
// expect: row error
// check: thorough
// instead of: b.of[k] += 2 * a.of[k];
// there is: b.of[k] += 2 * a.of[k] + (n % 1024 == 0 && i + k == n - 1);
