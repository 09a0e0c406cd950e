// The element itself is not in its sum
// expect: row error
// instead of: + own[i];
// there is: + own[i] - row[begin + i];
