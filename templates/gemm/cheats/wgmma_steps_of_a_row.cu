// A step of K is 16 bytes further instead of 32
// expect: row error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: step % 4 * 32
// there is: step % 4 * 16
