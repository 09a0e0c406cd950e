// x below the normal numbers of fp16 counts as 0
// expect: row error, element error, NaN in the output, Inf in the output
// problem: 5,72,512
// point: depth_warps=2 stages=3
// instead of: const uint4 x8 = eight_of_x(block, tile, half);
// there is: uint4 x8 = eight_of_x(block, tile, half); { u32* const w = &x8.x; for (int i = 0; i < 4; ++i) { float l = Fp16::low(w[i]), h = Fp16::high(w[i]); w[i] = cvt_f16x2(fabsf(l) < 6e-5f ? 0.f : l, fabsf(h) < 6e-5f ? 0.f : h); } }
