// Steps that do not divide among the CTAs are lost
// expect: row error, NaN in the output, uninitialised output, workspace not left zero, race
// on a GPU: row error, NaN in the output, workspace not left zero
// problem: 136,136,520,1
// template: gemm_mma
// point: bm=32 bn=32 panel=1 stages=3 work=stream
// instead of: end = all * (cta + 1) / ctas;
// there is: end = at + all / ctas;
