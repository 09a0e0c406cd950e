// V is multiplied before its copies by TMA have landed
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// problem: 1,2,512,64
// template: flash_wgmma_split
// point: copies=mixed share=columns shift=halves message=half epilogue=wide
// needs: sm_90a
// instead of: if (i == 0 || i == kFirstValues) mbarrier_wait(shared_address(&shared.v_full[at.group][i > 0]), 0);
// there is: __syncwarp();
