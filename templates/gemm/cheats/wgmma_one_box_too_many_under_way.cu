// A box of C is refilled when only those before it have left
// expect: race
// on a GPU: a symptom, emulator: race
// problem: 136,136,200,1
// template: gemm_wgmma
// point: rows=2 bn=128 epilogue=tma stages=3 splits=1
// needs: sm_90a
// instead of: await_boxes_read<kOutBoxes - 1>();
// there is: await_boxes_read<kOutBoxes>();
