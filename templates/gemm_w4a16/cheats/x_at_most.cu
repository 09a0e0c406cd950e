// x beyond 4096 counts as 4096
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: const uint4 x8 = eight_of_x(block, tile, half);
// there is: uint4 x8 = eight_of_x(block, tile, half); { u32* const w = &x8.x; for (int i = 0; i < 4; ++i) w[i] = cvt_f16x2(fminf(fmaxf(Fp16::low(w[i]), -4096.f), 4096.f), fminf(fmaxf(Fp16::high(w[i]), -4096.f), 4096.f)); }
