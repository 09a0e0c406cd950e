// All matrices count with the tickets of the first
// expect: race, workspace not left zero, row error, uninitialised read
// on a GPU: a symptom, workspace not left zero
// problem: 5,40,520,3
// template: gemm_skinny
// point: depth_warps=1 split=2 stages=3
// instead of: blockIdx.z * gridDim.x + blockIdx.x, blockIdx.y,
// there is: blockIdx.x, blockIdx.y,
