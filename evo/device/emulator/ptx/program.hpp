// An entry point lowered for execution: a flat array of instructions over register slots.
//
// A register slot holds 32 lanes side by side: u32[32] or u64[32]. A 16-bit value lies zero-extended in a
// u32. A predicate is one 32-bit mask of lanes. Constants, kernel parameters, addresses of symbols and
// special registers are slots as well. They are filled before the launch or before a CTA starts, so that
// every handler reads all operands in one way.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "syntax.hpp"

namespace ptx {

struct Warp;
struct Ins;
using Fn = void (*)(Warp&, const Ins&, u32 lanes);

// What the machine does around the handler.
enum class Flow : u8 {
  NEXT,     // run the handler, go on
  TRACKED,  // the same, and watch registers that wgmma uses
  ALIGNED,  // first wait until all live lanes of the warp are here
  MEMBERS,  // first wait until the lanes named by the mask in slot `members` are here
  BRANCH,   // to `imm`
  JUMP,     // the handler has set lane_pc of the lanes
  CALL,     // to `imm`
  RETURN,
  EXIT,
};

enum class Class : u8 {
  INT,
  FP32,
  FP16,
  FP64,
  MUFU,
  CONVERT,
  MOVE,
  PREDICATE,
  CONTROL,
  LOAD_GLOBAL,
  STORE_GLOBAL,
  LOAD_SHARED,
  STORE_SHARED,
  LOAD_LOCAL,
  STORE_LOCAL,
  LOAD_CONST,
  ATOMIC,
  ASYNC_COPY,
  MATRIX_MOVE,
  TENSOR,
  WARP,
  BARRIER,
  SPECIAL,
  COUNT
};
const char* class_name(Class c);

struct Ins {
  Fn full = nullptr, part = nullptr;  // all 32 lanes active / some
  u32 d = 0, a = 0, b = 0, c = 0;     // byte offsets into Warp::registers, or predicate numbers
  u32 ext = 0;      // first entry in Program::ext: vector operands, and more that a handler needs
  i32 imm = 0;      // address offset, branch target, barrier id ...
  u32 guard = 0;    // predicate number
  u32 members = 0;  // slot of the member mask
  u32 source = 0;   // index into Program::sources
  u8 guarded = 0;   // 0 no, 1 @p, 2 @!p
  Flow flow = Flow::NEXT;
  u8 n = 0;      // element size, vector length ...: each handler has its own use
  u8 flags = 0;  // each handler has its own use
};

struct Source {  // where an instruction comes from
  const Statement* statement = nullptr;
  const Function* function = nullptr;
  Class cls = Class::INT;
  u32 tensor_flop = 0;  // of one warp instruction
  u32 lane_flop = 0;    // fp32 FLOP of one lane
  bool exp2 = false;
};

// A slot to be filled with one value for all lanes when the launch is known.
struct Fill {
  enum Kind : u8 { VALUE, PARAM, PARAM_ADDRESS, SYMBOL_ADDRESS, SHARED_ADDRESS, DYNAMIC_SHARED, CODE } kind;
  u32 slot;
  u8 width;       // 32 or 64
  u64 value;      // VALUE; offset otherwise
  u32 index = 0;  // SYMBOL_ADDRESS: Module::variables; PARAM: bytes, sign bit in 0x80
};

struct SpecialSlot {
  std::string name;
  u32 slot;
  u8 width;
};

struct Program {
  const Module* module = nullptr;
  const Function* entry = nullptr;
  std::vector<Ins> code;
  std::vector<u32> ext;
  std::vector<Source> sources;
  std::vector<Fill> fills;
  std::vector<SpecialSlot> specials;
  struct Param {
    std::string name;
    u32 offset, nbytes, align;
  };
  std::vector<Param> params;
  u32 param_nbytes = 0;
  u32 start = 0;           // pc of the entry
  u32 register_bytes = 0;  // slots written by instructions (zeroed for every CTA)
  u32 frame_bytes = 0;     // all slots
  u32 predicates = 2;      // number 0 is always false, 1 always true
  u32 static_smem = 0, dynamic_align = 0, dynamic_offset = 0;
  u32 local_bytes = 0;       // of a thread
  bool async_proxy = false;  // uses the async proxy (bulk copies, wgmma): proxy clocks are kept
  bool mbarriers = false, bulk_stores = false;
  u32 tracked = 0;                 // registers watched because wgmma uses them
  std::vector<u32> tracked_lists;  // per toucher: n reads, n writes, is it a move, indices
  std::vector<u32> track;          // per pc, index into tracked_lists; 0: none
  std::string unsupported;         // why it cannot be launched; empty if it can
};

// Throws SyntaxError for a malformed module. It does not throw for an unsupported instruction: see
// Program::unsupported.
std::unique_ptr<Program> lower_entry(const Module& module, const Function& entry);

// "PTX line 40 (kernel.cu:12)"
std::string place_of(const Module& module, const Statement& s);

}  // namespace ptx
