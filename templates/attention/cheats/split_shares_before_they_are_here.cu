// The other CTA's share is added before it has come
// expect: race, uninitialised read
// on a GPU: a symptom, emulator: race, emulator: uninitialised read
// problem: 1,2,512,64
// template: flash_wgmma_split
// point: copies=threads share=columns message=half epilogue=wide
// needs: sm_90a
// instead of: mbarrier_wait_cluster(known_after(shares_full, before), 0);
// there is: __syncwarp();
