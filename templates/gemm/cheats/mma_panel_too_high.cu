// The last panel of tiles is as high as the others
// expect: row error, NaN in the output, uninitialised output, race
// on a GPU: row error, NaN in the output
// problem: 200,136,72,1
// template: gemm_mma
// point: bm=32 bn=32 panel=4 stages=3
// instead of: min(kPanel, tiles_down - first);
// there is: kPanel;
