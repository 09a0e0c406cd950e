// All rows in one stream, cut in the middles of rows: a CTA has the second half of the row before its own (the first
// CTA that of the last row) and the first half of its own. It begins with parts.cuh.
#ifndef SLOT  // where CTA `cta` leaves its first (0) or second (1) part
#define SLOT(cta, part) (2 * (cta) + (part))
#endif

struct Slots {
  unsigned tickets[2048];
  float sums[4096];
};

__device__ void leave(float* slot, float sum) {
  if (threadIdx.x == 0) *slot = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) kernel(const ELEMENT* x, const ELEMENT* weight, ELEMENT* y, int rows,
                                                             int columns, int pitch, float epsilon, Slots* slots) {
  __shared__ float warps[4];
  __shared__ unsigned last;
  for (int part = 0; part < 2; ++part) {
    const int cta = blockIdx.x, row = part ? cta : (cta ? cta : rows) - 1, other = (row + 1) % rows;
    const float sum = squares(x + static_cast<long long>(row) * pitch, part ? 0 : columns / 2, part ? columns / 2 : columns,
                              warps);
    leave(&slots->sums[SLOT(cta, part)], sum);
    if (arrives_last(&slots->tickets[row], 2, last)) {
      float* const first = &slots->sums[SLOT(row, 1)];
      float* const second = &slots->sums[SLOT(other, 0)];
      finish(x, weight, y, row, columns, pitch, *first + *second, epsilon);
      __syncthreads();
      if (threadIdx.x == 0) *first = *second = 0.f;
    }
  }
}
