// Blocks of B across K are taken for half as far apart
// expect: row error
// problem: 72,136,200,1 layout=NN
// template: gemm_wgmma
// point: bn=128 stages=3 splits=1
// needs: sm_90a
// instead of: kAlongK ? 16 : kBlockBytes>
// there is: kAlongK ? 16 : kBlockBytes / 2>
