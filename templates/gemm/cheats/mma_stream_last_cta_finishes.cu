// The CTA that ends a tile joins it, whether the others have left their parts or not
// expect: race, row error, uninitialised read, workspace not left zero
// on a GPU: a symptom, workspace not left zero, emulator: race, emulator: uninitialised read
// problem: 136,136,520,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 work=stream
// instead of: arrives_last(tickets + part.tile, part.parts, last)
// there is: (arrives_last(tickets + part.tile, part.parts, last), part.slot == part.slot_of(part.parts - 1))
