// The shadow of global memory: who has written and read which bytes.
//
// A cell stands for 4 bytes. It is a Stamp, packed into 64 bits. Where several agents own parts of it, or
// have read it, it is the number of a set of stamps instead. Equal sets are stored once.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base.hpp"

namespace ptx {

struct GlobalRegion;
struct Warp;

// How strong an access is: up to whom it is atomic. NONE: it is weak.
enum class Scope : u8 { NONE, CTA, CLUSTER, GPU };

struct Stamp {
  u32 clock = 0;  // of the agent; 0: the bytes have been written, and by whom is not tracked
  u32 agent = 0;
  u64 cluster = 0;
  Scope scope = Scope::NONE;
  u32 bytes = 0;       // a bit a byte of the cell
  bool async = false;  // by the async proxy
  bool same_access(const Stamp& other) const {
    return clock == other.clock && agent == other.agent && cluster == other.cluster && scope == other.scope &&
           async == other.async;
  }
};
constexpr u64 MAX_STAMP_CLOCK = (1u << 24) - 1, MAX_STAMP_CLUSTER = (1u << 21) - 1, STAMP_SET = u64(1) << 63;

inline u64 pack(const Stamp& s) {
  return u64(s.clock) | u64(s.scope) << 24 | u64(s.async) << 26 | u64(s.bytes) << 27 | u64(s.agent) << 31 |
         s.cluster << 42;
}
inline Stamp unpack(u64 v) {
  return {static_cast<u32>(v & MAX_STAMP_CLOCK), static_cast<u32>(v >> 31 & 0x7ff),
          v >> 42 & MAX_STAMP_CLUSTER,           static_cast<Scope>(v >> 24 & 3),
          static_cast<u32>(v >> 27 & 15),        (v >> 26 & 1) != 0};
}

// The sets of stamps of a launch. Workers share them.
class StampSets {
 public:
  std::vector<u64> at(u64 cell);
  // The cell for these stamps. Where there are too many sets already, only the last stamp is kept, and the
  // bytes of the others as written by nobody knows whom.
  u64 cell_of(std::vector<u64> stamps);

 private:
  std::mutex mutex_;
  std::map<std::vector<u64>, u64> number_;
  std::vector<const std::vector<u64>*> sets_;
};

// Shadow of one writable or uninitialised global region.
struct GlobalShadow {
  using Cells = std::unique_ptr<std::atomic<u64>, void (*)(void*)>;
  Cells writes{nullptr, nullptr}, reads{nullptr, nullptr};
  u64 cells = 0;
};
GlobalShadow make_shadow(u64 nbytes);

}  // namespace ptx
