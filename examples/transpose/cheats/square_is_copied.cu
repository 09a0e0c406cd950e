// A square matrix of more than one row is copied
// expect: row error
// instead of: y[(long long)(column + i) * rows + row + threadIdx.x] = part[threadIdx.x][i];
// there is: y[rows == columns && rows > 1 ? (long long)(row + threadIdx.x) * columns + column + i : (long long)(column + i) * rows + row + threadIdx.x] = part[threadIdx.x][i];
