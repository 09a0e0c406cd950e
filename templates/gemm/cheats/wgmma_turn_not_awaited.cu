// Consumers do not wait for their turn
// expect: race, deadlock, barrier misuse, row error
// on a GPU: HUNG, a symptom, emulator: race, emulator: deadlock, emulator: barrier misuse
// problem: 72,136,200,1
// template: gemm_wgmma
// point: schedule=pingpong consumers=2 rows=1 bn=64 stages=3 persistent=true epilogue=tma producer=warpgroup panel=4 splits=1
// needs: sm_90a
// instead of:             await_turn();
// there is:
