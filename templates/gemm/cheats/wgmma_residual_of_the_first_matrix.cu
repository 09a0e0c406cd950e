// Every matrix has the residual of the first
// expect: row error
// problem: 72,136,200,1 epilogue=residual
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (matrix, row, column, args.m, args.n);
// there is: (0, row, column, args.m, args.n);
