// Nothing is wrong: parts of K are added up from the last
// expect: GREEN
// problem: 72,136,264,1 out=fp32
// template: gemm_wgmma
// point: splits=2 stages=3
// needs: sm_90a
// instead of: partials[(split * kBlocks + i * (kBN / 8) + j) * kGroupThreads];
// there is: partials[((kSplits - 1 - split) * kBlocks + i * (kBN / 8) + j) * kGroupThreads];
