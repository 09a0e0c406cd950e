// A group is multiplied while it is still on its way
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 5,72,1024
// point: depth_warps=2 stages=3
// instead of: cp_async_wait<kStages - 2>();
// there is: cp_async_wait<kStages - 1>();
