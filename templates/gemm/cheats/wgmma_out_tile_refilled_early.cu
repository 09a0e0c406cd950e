// Rows of C are overwritten in shared memory before they have left
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 136,136,200,1
// template: gemm_wgmma
// point: rows=2 epilogue=tma stages=3 splits=1
// needs: sm_90a
// instead of: if (lane == 0) await_boxes_read<kOutBoxes - 1>();
// there is:
