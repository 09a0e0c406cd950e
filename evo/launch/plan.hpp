// A call as it is seen, the plan of what is launched for it, and the table that finds the one by the other.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "abi.hpp"

namespace evo {

constexpr int kMostArguments = 24;
constexpr int kMostWords = 192;
constexpr int kMostParameters = 32;
constexpr int kMostMaps = 6;
constexpr int kMostOutputs = 8;
constexpr int kRecent = 4;
constexpr Py_ssize_t kMostPlans = 4096;
constexpr size_t kSlots = 8192;  // a power of two, twice as many as there are plans

// ---- what a call is

struct Seen {
  PyObject* values[kMostArguments];  // borrowed of the caller
  DLTensor tensors[kMostArguments];
  bool is_tensor[kMostArguments];
  bool aligned;
  bool gradients;  // are recorded
  Py_ssize_t count;
  DLDevice device;  // of the last tensor; a plan is for tensors on one
  int words;
  int64_t signature[kMostWords];

  bool add(int64_t word) {
    if (words == kMostWords) return false;
    signature[words++] = word;
    return true;
  }
};

// Adds a flag's value: whether it is one that a call may be known by.
inline bool add_flag(Seen* seen, PyObject* value) {
  enum : int64_t { kConstant = 2, kNumber = 5, kText = 6 };
  if (value == Py_None || value == Py_True || value == Py_False)
    return seen->add(kConstant << 56 | (value == Py_None ? 2 : value == Py_True));
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && seen->add(kNumber << 56) && seen->add(number);
  }
  Py_ssize_t size = 0;
  const char* text = PyUnicode_CheckExact(value) ? PyUnicode_AsUTF8AndSize(value, &size) : nullptr;
  if (!text) return PyErr_Clear(), false;
  bool fits = seen->add(kText << 56 | size);
  for (Py_ssize_t at = 0; at < size && fits; at += 8) {
    int64_t word = 0;
    std::memcpy(&word, text + at, size - at < 8 ? size - at : 8);
    fits = seen->add(word);
  }
  return fits;
}

inline char* address_of(const DLTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

inline int64_t bytes_of(const DLTensor& tensor) {
  int64_t elements = 1;
  for (int at = 0; at < tensor.ndim; ++at) elements *= tensor.shape[at];
  return elements * ((tensor.dtype.bits * tensor.dtype.lanes + 7) / 8);
}

// Dense, not empty, and at a multiple of 16 bytes.
inline bool is_plain(const DLTensor& tensor) {
  int64_t stride = 1;
  for (int at = tensor.ndim - 1; at >= 0; --at) {
    if (tensor.shape[at] < 1) return false;
    if (tensor.shape[at] != 1 && tensor.strides && tensor.strides[at] != stride) return false;
    stride *= tensor.shape[at];
  }
  return reinterpret_cast<uintptr_t>(address_of(tensor)) % 16 == 0;
}

inline bool overlap(const DLTensor& a, const DLTensor& b) {
  const char *first = address_of(a), *second = address_of(b);
  return first < second + bytes_of(b) && second < first + bytes_of(a);
}

inline uint64_t hash_of(const int64_t* words, int count) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (int at = 0; at < count; ++at) {
    hash = (hash ^ static_cast<uint64_t>(words[at])) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  return hash;
}

// ---- what is launched for it

struct Parameter {
  enum Kind { kPointer, kBytes, kMap } kind;
  int source;  // of a pointer: an argument of the call, or, below 0, output -1 - source
  unsigned char bytes[16];
  TensorMap map;
};

// Where a workspace is that a stream keeps, or a graph that captures the stream.
struct Home {
  void* stream;
  uint64_t capture;
  void* address;  // or nullptr: not known
};

struct Output {
  int given;  // the argument that it is, or -1
  // None, or of a stream and a capture it gives an address, always the same one
  PyObject* kept;
  // None, or of the next three it gives a fresh tensor on the current device
  PyObject* quick;
  PyObject *size, *strides, *dtype;
  PyObject* kwargs;  // for torch.empty
  Home homes[kRecent];
  unsigned next_home;
};

// The last tensor maps of a parameter, by the address of their tensors: nothing else differs between calls.
struct Encoded {
  void* addresses[kRecent];
  unsigned char maps[kRecent][kMapBytes];
  unsigned next;
};

struct Plan {
  int references;
  uint64_t hash;
  int words;
  int64_t* signature;
  PyObject* keep;     // what must live as long as this may be launched
  PyObject* results;  // ((name, source), ...)
  void* function;
  void* context;
  LaunchConfig config;
  LaunchAttribute attributes[2];
  int parameters_count;
  Parameter parameters[kMostParameters];
  Encoded encoded[kMostMaps];
  int outputs_count;
  Output outputs[kMostOutputs];
};

inline void release(Plan* plan) {
  if (!plan || --plan->references) return;
  Py_XDECREF(plan->keep);
  Py_XDECREF(plan->results);
  for (int at = 0; at < plan->outputs_count; ++at) {
    const Output& one = plan->outputs[at];
    for (PyObject* held : {one.kept, one.quick, one.size, one.strides, one.dtype, one.kwargs})
      Py_DECREF(held);
  }
  std::free(plan->signature);
  std::free(plan);
}

struct Table {
  PyObject_HEAD;
  PyObject *tensor_type, *parameter_type, *empty, *is_grad_enabled, *names, *requires_grad, *nothing;
  const DLPackExchangeAPI* exchange;
  Driver driver;
  Plan** slots;
  Plan* last;  // that was found, or nullptr
  Py_ssize_t plans;
};

inline void forget(Table* table) {
  if (table->slots)
    for (size_t at = 0; at < kSlots; ++at) {
      Plan* plan = table->slots[at];
      table->slots[at] = nullptr;
      release(plan);
    }
  table->plans = 0;
  table->last = nullptr;
}

inline bool is_for(const Plan* plan, const Seen& seen) {
  return plan->words == seen.words &&
         !std::memcmp(plan->signature, seen.signature, sizeof(int64_t) * seen.words);
}

inline Plan* find(Table* table, const Seen& seen) {
  if (!table->slots) return nullptr;
  if (table->last && is_for(table->last, seen)) return table->last;
  const uint64_t hash = hash_of(seen.signature, seen.words);
  for (size_t at = hash & (kSlots - 1);; at = (at + 1) & (kSlots - 1)) {
    Plan* plan = table->slots[at];
    if (!plan) return nullptr;
    if (plan->hash == hash && is_for(plan, seen)) return table->last = plan;
  }
}

inline void insert(Table* table, Plan* plan) {
  size_t at = plan->hash & (kSlots - 1);
  while (table->slots[at]) at = (at + 1) & (kSlots - 1);
  table->slots[at] = plan;
  ++table->plans;
}

}  // namespace evo
