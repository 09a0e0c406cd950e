// Results are cut off to bf16 instead of rounded
// expect: row error, element error
// on a GPU: row error, element error
// problem: 72,136,200,1
// template: gemm_wgmma
// point: splits=1
// needs: sm_90a
// instead of: Element::pack(x.x, x.y);
// there is: (__float_as_uint(x.x) >> 16) | (__float_as_uint(x.y) & 0xffff0000u);
