// What lies behind the end of K in a row counts
// expect: row error, NaN in the output, out of bounds
// on a GPU: row error, NaN in the output
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of: (u * kAccess < at.left && j < at.columns)
// there is: (j < at.columns)
// instead of: ((first + u) * kAccess < at.left && i < at.rows)
// there is: (i < at.rows)
