// Products begin without waiting for the stage
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: mbarrier_wait(shared_address(&shared.full[at.stage]), at.parity);
// there is:
