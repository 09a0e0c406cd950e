// Both parts of a CTA of a stream are left in the same place
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 136,136,520,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 work=stream
// instead of: at == first ? 2 * own + 1 : 2 * own, 2 * begins + 1,
// there is: 2 * own, 2 * begins,
