// out = in + 1 by a warpgroup that fetches and one that works, with its registers. Honest as it stands: 64 registers a
// thread at the start (four CTAs of 256 to an SM); one warpgroup keeps 24 of them, so the other can have 104.

#define GIVE(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
#define TAKE(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))
#define MEET() asm volatile("bar.sync 1, 256;" ::: "memory")
#define WORKERS_MEET() asm volatile("bar.sync 2, 128;" ::: "memory")

extern "C" __global__ void __launch_bounds__(256, 4) fault(const float* in, float* out, int rows) {
  __shared__ float row[128];
  const int lane = threadIdx.x % 128, warp = threadIdx.x / 32;
  if (threadIdx.x < 128) {
    GIVE(24);  // FAULT nothing_given: ; // FAULT too_little_given: GIVE(32); // FAULT given_by_three_warps: if (warp != 1) GIVE(24); // FAULT given_when_done: ; // SEEN given_by_three_warps: barrier misuse
    for (int i = 0; i < rows; ++i) {
      row[lane] = in[i * 128 + lane];
      MEET();
      MEET();
    }
    // FAULT given_when_done: GIVE(24);
  } else {
    TAKE(104);  // FAULT too_much_taken: TAKE(112); // FAULT taken_twice: TAKE(88); TAKE(104); // FAULT taken_by_one_warp: if (warp == 4) TAKE(104); // SEEN nothing_given, too_little_given, too_much_taken, given_when_done, given_by_three_warps: deadlock // SEEN taken_twice, taken_by_one_warp: barrier misuse
    for (int i = 0; i < rows; ++i) {
      MEET();
      out[i * 128 + lane] = row[lane] + 1;
      MEET();
    }
    WORKERS_MEET();
    TAKE(104);  // FAULT taken_once_more: TAKE(112); // SEEN taken_once_more: deadlock // SEEN taken_by_one_warp: barrier misuse
  }
}
