// Both parts of a CTA have one slot: the second takes the place of the first before that is read
// expect: race, row error, workspace not left zero
// on a GPU: a symptom, emulator: race
// workspace: slots 24576 zeroed
#define SLOT(cta, part) ((cta) || (part) ? (cta) : rows)
#include "include/parts.cuh"
#include "include/stream.cuh"
