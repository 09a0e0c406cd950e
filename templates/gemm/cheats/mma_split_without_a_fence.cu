// What a CTA leaves is not ordered before its ticket
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 split=2
// instead of number 1: __threadfence();
// there is:
