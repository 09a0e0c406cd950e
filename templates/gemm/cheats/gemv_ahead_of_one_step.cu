// The step that is read ahead is the one that is multiplied now
// expect: row error
// problem: 3,20,1001,1
// template: gemv
// point: depth_warps=2 unroll=1 ahead=1
// instead of: ahead.advance();
// there is:
