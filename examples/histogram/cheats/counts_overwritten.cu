// Counts are stored, not added
// expect: wrong integer, race
// instead of: atomicAdd(&counts[bin], sum);
// there is: counts[bin] = sum;
