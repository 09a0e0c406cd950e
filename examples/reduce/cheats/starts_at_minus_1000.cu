// The largest element is at least -1000
// expect: row error
// check: thorough
// instead of number 1: {0.f, -INFINITY};
// there is: {0.f, -1000.f};
