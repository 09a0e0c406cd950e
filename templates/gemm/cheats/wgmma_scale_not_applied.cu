// The scale is forgotten
// expect: row error
// problem: 72,136,200,1 epilogue=scale
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: return sum * other;
// there is: return sum;
