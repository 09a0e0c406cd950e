// Every tile has the bias of the first
// expect: row error
// problem: 72,136,200,1 epilogue=bias
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: (matrix, row, column, args.m, args.n);
// there is: (matrix, row, column % kBN, args.m, args.n);
