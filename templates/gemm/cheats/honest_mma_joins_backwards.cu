// Nothing is wrong: parts are added up from the last
// expect: GREEN
// problem: 136,136,520,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 work=stream
// instead of: part.slot_of(other)
// there is: part.slot_of(part.parts - 1 - other)
