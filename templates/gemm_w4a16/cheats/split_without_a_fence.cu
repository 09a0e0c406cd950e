// What a CTA leaves is not ordered before its ticket
// expect: race, missing fence
// on a GPU: a symptom, emulator: race
// problem: 5,72,512
// point: depth_warps=1 split=2 stages=3
// instead of number 1: __threadfence();
// there is:
