// The ticket says that a sum is there before it is
// expect: missing fence, race
// on a GPU: a symptom, emulator: missing fence, emulator: race
// instead of number 1: __threadfence();
// there is:
