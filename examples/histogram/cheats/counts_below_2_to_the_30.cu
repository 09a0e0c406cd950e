// Counts from 2^30 on are not raised
// expect: wrong integer, race
// instead of: if (sum) atomicAdd(&counts[bin], sum);
// there is: if (sum && atomicAdd(&counts[bin], sum) > 0x40000000) atomicSub(&counts[bin], sum);
