// What is left of k after whole tiles is dropped
// expect: row error
// instead of: first < k; first
// there is: first + tile_k <= k; first
