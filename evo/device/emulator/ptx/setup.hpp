// Setting up: what no GPU would run is refused. Then the memory of a launch and of a cluster, and every warp
// at its start.
#pragma once
#include <memory>

#include "machine.hpp"

namespace ptx {

struct Refused {
  int kind;
  std::string text;
};

// Fills a launch whose program and configuration are set. Throws Refused.
void prepare(Launch& L);

// Where a variable of the module lies on the host; 0 where it has no place there.
u64 address_of(const Module& m, u32 variable);

// Faults if some CTA has not come to the grid's barrier, which the next launch would find half closed.
void check_grid_barrier(const Launch& L);

// The memory of a cluster, which the next one uses again, and how much it is.
std::unique_ptr<Cluster> make_cluster(Worker& worker);
u64 cluster_memory(const Launch& L);
// Fills constants, and what does not change from one cluster to the next. Throws Refused.
void fill_constants(Cluster& c);
// start: cluster number `linear` is about to run. finish: it has run.
void start(Cluster& c, u64 linear);
void finish(Cluster& c);

}  // namespace ptx
