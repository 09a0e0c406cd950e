// A CTA takes a tile through shared memory, so that it reads and writes whole rows.
#include <cuda_fp16.h>
#ifndef element
#define element float
#endif
#ifndef tile
#define tile 32
#endif
#ifndef block_size_y
#define block_size_y 8
#endif
#ifndef pad
#define pad 1
#endif

__global__ void __launch_bounds__(tile * block_size_y)
transpose(const element* x, element* y, int rows, int columns) {
  __shared__ element part[tile][tile + pad];
  const int row = blockIdx.y * tile, column = blockIdx.x * tile;
  for (int i = threadIdx.y; i < tile; i += block_size_y)
    if (row + i < rows && column + threadIdx.x < columns)
      part[i][threadIdx.x] = x[(long long)(row + i) * columns + column + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < tile; i += block_size_y)
    if (column + i < columns && row + threadIdx.x < rows)
      y[(long long)(column + i) * rows + row + threadIdx.x] = part[threadIdx.x][i];
}
