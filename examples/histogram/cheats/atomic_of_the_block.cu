// CTAs add to the counts with the scope of one CTA
// expect: race
// on a GPU: wrong integer, runs differ, emulator: race
// instead of: atomicAdd(&counts[bin], sum);
// there is: atomicAdd_block(&counts[bin], sum);
