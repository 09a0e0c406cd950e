// TMA stores rows that no fence has shown to it
// expect: missing fence
// on a GPU: a symptom, emulator: missing fence
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 epilogue=tma splits=1
// needs: sm_90a
// instead of:         fence_proxy_async();
// there is:
