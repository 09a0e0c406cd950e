// Rows and columns of the weights are exchanged
// expect: row error
// instead of: weight[i * taps + j]
// there is: weight[j * taps + i]
