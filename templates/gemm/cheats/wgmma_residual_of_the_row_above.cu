// Rows from 64 on have the residual of the row above
// expect: row error
// problem: 72,136,200,1 epilogue=residual
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (matrix, row, column, args.m, args.n);
// there is: (matrix, row - (row >= kGroupRows), column, args.m, args.n);
