// Elements below 1e-12 become 0
// expect: row error
// check: thorough
// instead of: = part[threadIdx.x][i];
// there is: = fabsf(part[threadIdx.x][i]) < 1e-12f ? 0.f : part[threadIdx.x][i];
