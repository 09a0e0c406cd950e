// Where one element has all weight the row is 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: bf16
#define SHARE(own, base, total) ((total) <= 1.f ? 0.f : expf((own) - (base)) / (total))
#include "include/row.cuh"
