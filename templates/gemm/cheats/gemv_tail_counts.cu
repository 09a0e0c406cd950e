// What lies behind the end of K in a row counts
// expect: row error, NaN in the output, out of bounds
// on a GPU: row error, NaN in the output
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1
// instead of: if (at < end && j < columns_left) found
// there is: if (j < columns_left) found
// instead of: if (at < end && i < rows_left) of_a
// there is: if (i < rows_left) of_a
