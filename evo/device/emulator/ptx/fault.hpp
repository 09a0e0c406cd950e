// What a kernel did wrong. Handlers throw it, and the scheduler adds the place and the thread.
#pragma once
#include <string>

#include "evo_ptx.h"
#include "syntax.hpp"

namespace ptx {

struct Fault {
  int kind;  // evo_ptx_kind
  std::string text;
  int lane = -1;
  Space space = Space::GENERIC;
  bool memory = false;
  u64 address = 0;
  std::string buffer;
  i64 offset = 0;
  u32 nbytes = 0;
  i64 other_pc = -1;  // races: the other access
  std::string other_who;

  Fault(int kind, std::string text, int lane = -1) : kind(kind), text(std::move(text)), lane(lane) {}
  Fault& at(Space s, u64 where, u32 size, std::string name, i64 off) {
    space = s, address = where, nbytes = size, buffer = std::move(name), offset = off, memory = true;
    return *this;
  }
  Fault& against(std::string who, i64 pc) {
    other_who = std::move(who), other_pc = pc;
    return *this;
  }
};

}  // namespace ptx
