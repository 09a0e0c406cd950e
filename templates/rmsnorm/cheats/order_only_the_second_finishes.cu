// The CTA of the second half finishes the row whenever it comes: the first one was started before it
// expect: row error, NaN in the output, race, workspace not left zero
// on a GPU: a symptom, emulator: race, emulator: row error, emulator: workspace not left zero
// launch: grid_y=2
// workspace: meetings 65536 zeroed
#define FINISHES(at, half) (arrives_last(&(at)->ticket, half + 1, last), half)
#include "include/parts.cuh"
#include "include/halves.cuh"
