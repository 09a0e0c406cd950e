// Products wait for the phase before
// expect: race, uninitialised read, deadlock
// on a GPU: a symptom, emulator: race, HUNG, emulator: uninitialised read, emulator: deadlock
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: mbarrier_wait(shared_address(&shared.full[at.stage]), at.parity);
// there is: mbarrier_wait(shared_address(&shared.full[at.stage]), at.parity ^ 1);
