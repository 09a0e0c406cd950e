// All blocks of rows are the first
// expect: row error, race, NaN in the output, uninitialised output
// on a GPU: row error, NaN in the output
// problem: 13,72,520,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: first_row = blockIdx.z % blocks * kRows;
// there is: first_row = blockIdx.z % blocks * 0;
