// Losses are written in another order
// expect: row error
#define LOSS_OF_ROW (rows - 1 - row)
#include "include/row.cuh"
