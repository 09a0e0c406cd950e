// The ticket is not left zero
// expect: workspace not left zero, NaN in the output, runs differ
// instead of: *ticket = 0;
// there is:
