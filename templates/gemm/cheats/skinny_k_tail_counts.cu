// What lies behind the end of K in a row counts
// expect: row error, NaN in the output, out of bounds
// on a GPU: row error, NaN in the output
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: const bool real = column < columns_left && at < depth;
// there is: const bool real = column < columns_left;
// instead of: if (row >= rows_left || at >= depth) return
// there is: if (row >= rows_left) return
