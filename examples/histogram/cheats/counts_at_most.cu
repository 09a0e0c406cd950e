// Counts are at most 2^20
// expect: wrong integer
// instead of: atomicAdd(&counts[bin], sum);
// there is: atomicAdd(&counts[bin], sum), atomicMin(&counts[bin], 1 << 20);
