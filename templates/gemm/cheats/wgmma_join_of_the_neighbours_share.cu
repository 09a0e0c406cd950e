// A CTA adds up its sums of the other's share
// expect: row error
// problem: 72,136,520,1
// template: gemm_wgmma
// point: splits=2 join=cluster stages=3
// needs: sm_90a
// instead of: if (j / kShare != rank) continue;
// there is: if (j / kShare == rank) continue;
