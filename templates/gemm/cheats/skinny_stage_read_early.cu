// A step is multiplied while it is still on its way
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 5,72,1032,1
// template: gemm_skinny
// point: depth_warps=2 stages=3
// instead of: cp_async_wait<kStages - 2>();
// there is: cp_async_wait<kStages - 1>();
