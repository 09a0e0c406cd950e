// A stage is refilled while it is read
// expect: race, row error, uninitialised read
// on a GPU: a symptom
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: copy(step + kStages - 1);
// there is: copy(step + kStages);
