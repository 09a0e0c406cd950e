// Nothing is wrong: K is walked from its end
// expect: GREEN
// problem: 72,136,200,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3
// instead of: a.copy(stage.a, step * kBK);
// there is: a.copy(stage.a, (end - 1 - (step - begin)) * kBK);
// instead of: b.copy(stage.b, step * kBK);
// there is: b.copy(stage.b, (end - 1 - (step - begin)) * kBK);
