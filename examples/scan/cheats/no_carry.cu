// Each chunk begins at 0
// expect: row error
// instead of: carry += last;
// there is: carry = 0.f;
