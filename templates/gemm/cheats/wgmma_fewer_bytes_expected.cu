// Barriers of stages wait for A alone
// expect: race, deadlock, barrier misuse
// on a GPU: a symptom, emulator: race, HUNG, emulator: deadlock
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: sizeof(ATile) + sizeof(BTile));
// there is: sizeof(ATile));
