// Tickets are not reset
// expect: workspace not left zero
// on a GPU: workspace not left zero
// problem: 72,136,264,1 out=fp32
// template: gemm_wgmma
// point: splits=2 stages=3
// needs: sm_90a
// instead of: if (thread == 0) args.tickets[place] = 0;
// there is:
