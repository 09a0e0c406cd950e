// Columns beyond the last one are stored
// expect: write outside a buffer, race, row error
// on a GPU: a symptom, write outside a buffer
// problem: 5,71,512
// point: depth_warps=2 stages=3
// instead of: if (to < columns) y
// there is: if (to <= columns) y
