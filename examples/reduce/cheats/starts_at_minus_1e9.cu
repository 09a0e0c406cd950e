// The largest element is at least -1e9
// expect: row error
// check: thorough
// check: thorough
// instead of: Found all = {0.f, -INFINITY};
// there is: Found all = {0.f, -1e9f};
