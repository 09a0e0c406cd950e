// A CTA ends while TMA may still read its shared memory
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 epilogue=tma splits=1
// needs: sm_90a
// instead of: if (kStoreBoxes && consumer.lane == 0) await_boxes_read<0>();
// there is:
