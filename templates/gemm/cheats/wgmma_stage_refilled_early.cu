// The producer does not wait until a stage was read
// expect: race, barrier misuse
// on a GPU: a symptom, emulator: race, HUNG, emulator: barrier misuse
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of number 1: mbarrier_wait(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
// there is:
