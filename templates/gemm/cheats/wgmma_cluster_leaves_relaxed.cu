// A CTA exits after a barrier of the cluster whose arrivals are relaxed: they wait for no arrival at an mbarrier
// expect: race
// on a GPU: a symptom, emulator: race, CRASHED
// problem: 136,136,200,1
// template: gemm_wgmma
// point: multicast=b bn=64 stages=3 splits=1
// needs: sm_90a
// instead of: for (int stage = 0; stage < kStages; ++stage, at.advance())
// there is: for (int stage = kStages; stage < kStages; ++stage)
// instead of: if constexpr (kJoinCluster) cluster_wait();
// there is: cluster_arrive_relaxed(), cluster_wait();
// instead of: if (kStoreBoxes && consumer.lane == 0) await_boxes_read<0>();
// there is: if (kStoreBoxes && consumer.lane == 0) await_boxes_read<0>(); __syncwarp(); cluster_arrive_relaxed(), cluster_wait();
