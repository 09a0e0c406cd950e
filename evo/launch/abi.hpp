// What this library shares with torch (DLPack) and with NVIDIA's driver: structs, numbers, and addresses.
// tests/test_fast_call.py asserts them against the headers of both.
#pragma once

#include <cstdint>

namespace evo {

// ---- DLPack 1.3

constexpr int kDLCPU = 1;
constexpr uint32_t kDLPackMajor = 1;

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct DLPackExchangeAPI {
  uint32_t major, minor;
  DLPackExchangeAPI* previous;
  void* allocate;
  void* managed_tensor_from_py_object_no_sync;
  void* managed_tensor_to_py_object_no_sync;
  int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
};

// ---- the CUDA driver

constexpr unsigned kClusterDimension = 4, kCooperative = 2;
constexpr int kMapBytes = 128;

struct LaunchAttribute {
  unsigned id;
  unsigned padding;
  unsigned value[16];
};

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned smem_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attributes_count;
};

// What cuTensorMapEncodeTiled takes beside the address, as numbers of the driver. Python packs it.
struct TensorMap {
  uint32_t dtype, rank, swizzle, promotion;
  uint64_t shape[5], strides[5];  // the innermost dimension has no stride
  uint32_t box[5], steps[5];
};

struct Driver {
  int (*launch)(const LaunchConfig*, void* function, void** parameters, void** extra);
  int (*current)(void** context);
  int (*make_current)(void* context);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*encode)(void* map, uint32_t dtype, uint32_t rank, void* address, const uint64_t* shape,
                const uint64_t* strides, const uint32_t* box, const uint32_t* steps, uint32_t interleave,
                uint32_t swizzle, uint32_t promotion, uint32_t fill);
  int (*capture)(void* stream, int* status, uint64_t* id, void* graph, void* nodes, void* count);
};

// The number of the graph that captures `stream`, 0 where none does.
inline int captured_by(const Driver& driver, void* stream, uint64_t* out) {
  int capturing = 0;
  const int status = driver.capture(stream, &capturing, out, nullptr, nullptr, nullptr);
  if (!capturing) *out = 0;
  return status;
}

inline int encode(const Driver& driver, const TensorMap& map, void* address, void* out) {
  return driver.encode(out, map.dtype, map.rank, address, map.shape, map.strides, map.box, map.steps, 0,
                       map.swizzle, map.promotion, 0);
}

// Calls `work` with `context` current. A thread without any keeps it; another one of the thread's comes back.
template <class Work>
int in_context(const Driver& driver, void* context, Work work) {
  void* before = nullptr;
  if (!driver.current || !context) return work();
  if (int status = driver.current(&before)) return status;
  if (before == context) return work();
  if (!before) {
    const int status = driver.make_current(context);
    return status ? status : work();
  }
  if (int status = driver.push(context)) return status;
  const int status = work();
  driver.pop(&before);
  return status;
}

}  // namespace evo
