// The second half of a word is taken as if it came first
// expect: row error
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: const u32 early = half == 0 ? words[strip].x : words[strip].z;
// there is: const u32 early = half == 1 ? words[strip].x : words[strip].z;
