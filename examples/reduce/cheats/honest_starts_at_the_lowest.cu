// Nothing is wrong: the largest element is at least the lowest float
// expect: GREEN
// instead of: Found all = {0.f, -INFINITY};
// there is: Found all = {0.f, -3.402823466e38f};
