// A tile that leaves under the next one's products leaves to the next one's place
// expect: uninitialised output, row error, NaN in the output
// problem: 72,136,200,1
// template: gemm_wgmma
// point: consumers=2 rows=1 bn=64 stages=3 persistent=true raster=m epilogue=tma panel=4 splits=1
// needs: sm_90a
// instead of: leaving = work.item;
// there is: leaving = work.item + gridDim.x;
