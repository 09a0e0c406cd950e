// The largest of negative numbers is 0
// expect: row error
// instead of number 1: {0.f, -INFINITY};
// there is: {0.f, 0.f};
