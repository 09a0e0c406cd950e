// Each CTA of a split stores what it has
// expect: race, row error
// on a GPU: a symptom
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 split=2
// instead of: if (part.parts > 1 && !join_parts<kThreads>(sums, part, partials, tickets, shared.last)) return;
// there is: if (part.parts > 1) join_parts<kThreads>(sums, part, partials, tickets, shared.last);
