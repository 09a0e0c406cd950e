// The last panel is taken for as high as the others
// expect: NaN in the output, row error
// on a GPU: NaN in the output, row error, runs differ
// problem: 72,136,200,1
// template: gemm_wgmma
// point: panel=4 splits=1
// needs: sm_90a
// instead of: min(kPanel, width - panel * kPanel)
// there is: kPanel
