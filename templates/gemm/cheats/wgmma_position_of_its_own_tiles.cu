// A consumer counts the steps of its own tiles alone
// expect: race, deadlock, row error
// on a GPU: HUNG, a symptom, emulator: race, emulator: deadlock
// problem: 72,136,200,1
// template: gemm_wgmma
// point: schedule=pingpong consumers=2 rows=1 bn=64 stages=3 persistent=true epilogue=tma producer=warpgroup panel=4 splits=1
// needs: sm_90a
// instead of:         steps_before += work.steps;
// there is:         if (!kPingpong || done % kConsumers == consumer) steps_before += work.steps;
