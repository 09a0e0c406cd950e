// What lies behind the end of K in a row counts
// expect: row error, NaN in the output, out of bounds
// on a GPU: row error, NaN in the output
// problem: 5,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: const bool real = copied + along < depth;
// there is: const bool real = true;
// instead of: if (multiplied + along >= depth) return
// there is: if (false) return
