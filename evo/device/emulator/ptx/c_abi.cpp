// The C ABI of the interpreter: handles, and no exception gets out.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "evo_ptx.h"
#include "lower.hpp"
#include "scheduler.hpp"
#include "setup.hpp"
#include "tensor.hpp"
#include "tensor_map.hpp"

using namespace ptx;

struct evo_ptx_module {
  Module module;
  std::vector<std::unique_ptr<Program>> programs;  // one an entry, in the order of the text
};

struct evo_ptx_report {
  Outcome outcome;
  const Program* program = nullptr;
  evo_ptx_error error{};
  std::vector<evo_ptx_counter> counters;
  std::vector<evo_ptx_work> instructions, lines;
};

namespace {

void put_text(char* out, size_t n, const std::string& text) {
  if (!out || !n) return;
  const size_t k = std::min(n - 1, text.size());
  std::memcpy(out, text.data(), k);
  out[k] = 0;
}

const char* file_of(const Program& p, u32 file, u32 line) {
  auto it = p.module->files.find(file);
  return line && it != p.module->files.end() ? it->second.c_str() : "";
}

void fill_error(evo_ptx_report& r) {
  const Outcome& o = r.outcome;
  evo_ptx_error& e = r.error;
  e.kind = o.kind;
  e.text = o.text.c_str(), e.message = o.message.c_str(), e.kernel = o.kernel.c_str(),
  e.file = o.file.c_str();
  e.line = o.line, e.ptx_line = o.ptx_line, e.ptx_text = o.ptx_text.c_str();
  std::copy(o.cta, o.cta + 3, e.cta);
  std::copy(o.thread, o.thread + 3, e.thread);
  e.warp = o.warp, e.lane = o.lane, e.lanes = o.lanes;
  e.address = o.address, e.space = o.space.c_str(), e.buffer = o.buffer.c_str();
  e.offset = o.offset, e.access_nbytes = o.nbytes, e.other = o.other.c_str();
}

// What every instruction did, and every line. It is worked out only when asked for, because it takes as long
// as a small launch.
void fill_work(evo_ptx_report& r) {
  if (!r.program || r.outcome.counts.empty() || !r.instructions.empty()) return;
  const Program& p = *r.program;
  for (size_t i = 0; i < p.code.size(); i++) {
    const Source& source = p.sources[p.code[i].source];
    const Statement& s = *source.statement;
    const Count& c = r.outcome.counts[i];
    evo_ptx_work w{};
    w.file = file_of(p, s.source_file, s.source_line);
    w.line = s.source_line;
    w.ptx_line = s.line;
    w.text = s.text.c_str();
    w.instruction_class = class_name(source.cls);
    w.static_count = 1;
    w.executed_count = c.executed > 0;
    w.warp_instructions = c.executed, w.thread_instructions = c.lanes;
    w.shared_wavefronts = c.wavefronts, w.shared_wavefronts_ideal = c.ideal;
    w.global_sectors = c.sectors, w.global_nbytes = c.bytes;
    r.instructions.push_back(w);
  }
  std::map<std::pair<std::string, u32>, evo_ptx_work> by_line;
  for (auto& w : r.instructions) {
    auto [it, fresh] = by_line.try_emplace({w.file, w.line}, w);
    evo_ptx_work& t = it->second;
    if (fresh) {
      t.ptx_line = 0;
      t.text = t.instruction_class = "";
      continue;
    }
    t.static_count++, t.executed_count += w.executed_count;
    t.warp_instructions += w.warp_instructions, t.thread_instructions += w.thread_instructions;
    t.shared_wavefronts += w.shared_wavefronts, t.shared_wavefronts_ideal += w.shared_wavefronts_ideal;
    t.global_sectors += w.global_sectors, t.global_nbytes += w.global_nbytes;
  }
  for (auto& [key, w] : by_line) r.lines.push_back(w);
}

const evo_ptx_work* work_of(evo_ptx_report* r, std::vector<evo_ptx_work> evo_ptx_report::* which,
                            uint32_t* count) {
  if (count) *count = 0;
  if (!r) return nullptr;
  try {
    fill_work(*r);
  } catch (std::bad_alloc&) {
    return nullptr;
  }
  if (count) *count = static_cast<uint32_t>((r->*which).size());
  return (r->*which).data();
}

constexpr const char* CLASS_COUNTERS[] = {
    "inst_int",          "inst_fp32",        "inst_fp16",         "inst_fp64",        "inst_mufu",
    "inst_convert",      "inst_move",        "inst_predicate",    "inst_control",     "inst_load_global",
    "inst_store_global", "inst_load_shared", "inst_store_shared", "inst_load_local",  "inst_store_local",
    "inst_load_const",   "inst_atomic",      "inst_async_copy",   "inst_matrix_move", "inst_tensor",
    "inst_warp",         "inst_barrier",     "inst_special"};
static_assert(std::size(CLASS_COUNTERS) == static_cast<size_t>(Class::COUNT));

void fill_counters(evo_ptx_report& r) {
  const Program& p = *r.program;
  double by_class[static_cast<size_t>(Class::COUNT)] = {}, instructions = 0, threads = 0, tensor = 0,
         flop = 0, exp2 = 0, mufu = 0, wavefronts = 0, ideal = 0;
  for (size_t i = 0; i < p.code.size(); i++) {
    const Source& s = p.sources[p.code[i].source];
    const Count& c = r.outcome.counts[i];
    const double n = static_cast<double>(c.executed), lanes = static_cast<double>(c.lanes);
    by_class[static_cast<size_t>(s.cls)] += n;
    instructions += n, threads += lanes;
    tensor += n * s.tensor_flop, flop += lanes * s.lane_flop;
    if (s.exp2) exp2 += lanes;
    if (s.cls == Class::MUFU) mufu += lanes;
    wavefronts += static_cast<double>(c.wavefronts), ideal += static_cast<double>(c.ideal);
  }
  const Totals& t = r.outcome.totals;
  auto add = [&](const char* name, auto value) { r.counters.push_back({name, static_cast<double>(value)}); };
  add("ctas", r.outcome.ctas), add("warps", r.outcome.warps), add("threads_launched", r.outcome.threads);
  add("instructions", instructions), add("thread_instructions", threads);
  for (size_t i = 0; i < std::size(CLASS_COUNTERS); i++) add(CLASS_COUNTERS[i], by_class[i]);
  add("tensor_flop", tensor), add("fp32_flop", flop), add("exp2", exp2), add("mufu", mufu);
  add("shared_wavefronts", wavefronts), add("shared_wavefronts_ideal", ideal);
  add("shared_bytes_read", t.shared_read), add("shared_bytes_written", t.shared_written);
  add("global_sectors_read", t.sectors_read), add("global_sectors_written", t.sectors_written);
  add("global_bytes_read", t.global_read), add("global_bytes_written", t.global_written);
  add("async_copy_bytes", t.async_bytes);
  add("barrier_waits", t.barrier_waits), add("mbarrier_waits", t.mbarrier_waits);
  add("divergent_branches", t.divergent), add("max_resident_ctas", t.max_resident);
}

}  // namespace

extern "C" {

uint32_t evo_ptx_abi_version(void) { return EVO_PTX_ABI_VERSION; }
const char* evo_ptx_build(void) { return tensor_path(); }

evo_ptx_module* evo_ptx_parse(const char* text, size_t nbytes, char* error, size_t error_nbytes,
                              uint32_t* error_line) {
  if (error_line) *error_line = 0;
  try {
    auto m = std::make_unique<evo_ptx_module>();
    m->module = parse_module(std::string_view(text ? text : "", text ? nbytes : 0));
    for (auto& f : m->module.functions)
      if (f.entry) m->programs.push_back(lower_entry(m->module, f));
    return m.release();
  } catch (SyntaxError& e) {
    if (error_line) *error_line = e.line;
    put_text(error, error_nbytes, "PTX line " + std::to_string(e.line) + ": " + e.what());
  } catch (std::bad_alloc&) {
    put_text(error, error_nbytes, "out of memory");
  } catch (std::exception& e) {
    put_text(error, error_nbytes, e.what());
  }
  return nullptr;
}
void evo_ptx_module_free(evo_ptx_module* m) { delete m; }
const char* evo_ptx_target(const evo_ptx_module* m) { return m ? m->module.target.c_str() : ""; }
const char* evo_ptx_version(const evo_ptx_module* m) { return m ? m->module.version.c_str() : ""; }

uint32_t evo_ptx_entry_count(const evo_ptx_module* m) {
  return m ? static_cast<uint32_t>(m->programs.size()) : 0;
}
int evo_ptx_entry_get(const evo_ptx_module* m, uint32_t index, evo_ptx_entry* out) {
  if (!m || !out || index >= m->programs.size()) return -1;
  const Program& p = *m->programs[index];
  const Function& f = *p.entry;
  *out = {};
  out->name = f.name.c_str();
  out->param_count = static_cast<uint32_t>(p.params.size());
  out->param_nbytes = p.param_nbytes;
  out->static_smem = p.static_smem;
  out->dynamic_smem_align = p.dynamic_align;
  out->local_nbytes = p.local_bytes > LOCAL_BASE ? p.local_bytes - LOCAL_BASE : 0;
  out->max_threads = f.max_threads;
  std::copy(f.required_threads, f.required_threads + 3, out->required_threads);
  std::copy(f.required_cluster, f.required_cluster + 3, out->required_cluster);
  out->min_ctas_per_sm = f.min_ctas;
  out->instruction_count = static_cast<uint32_t>(p.code.size());
  out->unsupported = p.unsupported.empty() ? nullptr : p.unsupported.c_str();
  return 0;
}
int evo_ptx_param_get(const evo_ptx_module* m, uint32_t entry, uint32_t index, evo_ptx_param* out) {
  if (!m || !out || entry >= m->programs.size() || index >= m->programs[entry]->params.size()) return -1;
  const Program::Param& p = m->programs[entry]->params[index];
  *out = {p.name.c_str(), p.offset, p.nbytes, p.align};
  return 0;
}

void* evo_ptx_variable(const evo_ptx_module* m, const char* name, uint64_t* nbytes) {
  const auto found = m->module.variable_index.find(name);
  if (found == m->module.variable_index.end()) return nullptr;
  const u64 address = address_of(m->module, found->second);
  *nbytes = address ? m->module.variables[found->second].nbytes : 0;
  return reinterpret_cast<void*>(address);
}

int evo_ptx_tensor_map_encode(const evo_ptx_tensor_map* map, void* out128, char* error, size_t error_nbytes) {
  if (!map || !out128) {
    put_text(error, error_nbytes, "no map");
    return -1;
  }
  const std::string why = encode_tensor_map(*map, static_cast<u8*>(out128));
  put_text(error, error_nbytes, why);
  return why.empty() ? 0 : -1;
}

const char* evo_ptx_kind_name(int32_t kind) {
  static const char* const names[] = {
      "ok",   "refused",  "unsupported", "out of bounds", "misaligned",  "uninitialised", "race",    "proxy",
      "sync", "deadlock", "runaway",     "trap",          "bad operand", "aborted",       "internal"};
  return kind >= 0 && kind < static_cast<int32_t>(std::size(names)) ? names[kind] : "unknown";
}

evo_ptx_report* evo_ptx_run(const evo_ptx_module* m, const evo_ptx_launch* launch) {
  evo_ptx_report* r = new (std::nothrow) evo_ptx_report;
  if (!r) return nullptr;
  try {
    auto refuse = [&](const char* why) {
      r->outcome.kind = EVO_PTX_REFUSED;
      r->outcome.text = r->outcome.message = why;
    };
    if (!m || !launch || launch->struct_nbytes != sizeof(evo_ptx_launch)) {
      refuse("the caller was built against another version of evo_ptx.h");
    } else if (launch->entry >= m->programs.size()) {
      refuse("no such entry point");
    } else {
      r->program = m->programs[launch->entry].get();
      r->outcome = run_launch(*r->program, *launch);
      fill_counters(*r);
    }
  } catch (std::bad_alloc&) {
    r->outcome.kind = EVO_PTX_INTERNAL;
    r->outcome.text = r->outcome.message = "out of memory";
  } catch (std::exception& e) {
    r->outcome.kind = EVO_PTX_INTERNAL;
    r->outcome.text = r->outcome.message = std::string("a bug of the interpreter: ") + e.what();
  }
  fill_error(*r);
  return r;
}
void evo_ptx_report_free(evo_ptx_report* r) { delete r; }
const evo_ptx_error* evo_ptx_report_error(const evo_ptx_report* r) { return r ? &r->error : nullptr; }
double evo_ptx_report_seconds(const evo_ptx_report* r) { return r ? r->outcome.seconds : 0; }

const evo_ptx_counter* evo_ptx_report_counters(const evo_ptx_report* r, uint32_t* count) {
  if (count) *count = r ? static_cast<uint32_t>(r->counters.size()) : 0;
  return r ? r->counters.data() : nullptr;
}
double evo_ptx_report_coverage(const evo_ptx_report* r) {
  if (!r || r->outcome.counts.empty()) return 1;
  const auto ran = std::count_if(r->outcome.counts.begin(), r->outcome.counts.end(),
                                 [](const Count& c) { return c.executed > 0; });
  return static_cast<double>(ran) / static_cast<double>(r->outcome.counts.size());
}
const evo_ptx_work* evo_ptx_report_instructions(evo_ptx_report* r, uint32_t* count) {
  return work_of(r, &evo_ptx_report::instructions, count);
}
const evo_ptx_work* evo_ptx_report_lines(evo_ptx_report* r, uint32_t* count) {
  return work_of(r, &evo_ptx_report::lines, count);
}

const evo_ptx_row* evo_ptx_table(uint32_t* count) {
  static const std::vector<evo_ptx_row> rows = [] {
    std::vector<evo_ptx_row> v;
    for (auto& family : instruction_table())
      for (auto& row : family.rows) v.push_back({row.pattern, family.name, class_name(row.cls), row.note});
    return v;
  }();
  if (count) *count = static_cast<uint32_t>(rows.size());
  return rows.data();
}

}  // extern "C"
