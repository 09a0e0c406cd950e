/* Loads and launches kernels that evo exported, by NVIDIA's driver. Plain C11; link with -ldl -lm. */
#pragma once
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { EVO_SIZES = 8, EVO_ARGUMENTS = 32, EVO_OVERRIDE = 8, EVO_CLUSTER = 4, EVO_COOPERATIVE = 2 };

typedef struct { /* CUlaunchAttribute */
  unsigned id, padding, value[16];
} evo_attribute;
typedef struct { /* CUlaunchConfig */
  unsigned grid[3], block[3], smem_bytes;
  void* stream;
  evo_attribute* attributes;
  unsigned attributes_count;
} evo_config;
typedef struct { /* functions of the driver, by dlopen */
  int (*init)(unsigned), (*module_load)(void**, const void*);
  int (*module_function)(void**, void*, const char*), (*set_attribute)(void*, int, int);
  int (*launch)(const evo_config*, void*, void**, void**);
  int (*encode)(void*, unsigned, unsigned, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                const uint32_t*, unsigned, unsigned, unsigned, unsigned);
  int (*set_bytes)(uint64_t, unsigned char, size_t, void*);
} evo_driver;
typedef struct { /* what differs from call to call */
  unsigned grid[3];
  void* argument[EVO_ARGUMENTS];
  _Alignas(64) unsigned char bytes[EVO_ARGUMENTS][128];
} evo_launch;
typedef struct { /* a kernel: what it is for, from which sizes to which its code serves, and its launch */
  const char *name, *entry, *dtype, *flags;
  const unsigned char* cubin;
  int major, minor, this_version_alone, sizes;
  int64_t own[EVO_SIZES], low[EVO_SIZES], high[EVO_SIZES], step[EVO_SIZES];
  unsigned block[3], cluster[3], cooperative, smem_bytes, arguments;
  int (*fill)(const evo_driver*, const int64_t* size, void* const* buffer, char* workspace, evo_launch*);
  int64_t (*workspaces)(const int64_t* size, int64_t* offset, int64_t* zeroed); /* or NULL */
} evo_kernel;
typedef struct {
  const evo_kernel* kernel;
  void* function;
} evo_loaded;

static inline int64_t evo_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

static inline int64_t evo_some(int64_t parts, int64_t over) { return parts < over ? 1 : parts / over; }

static inline int64_t evo_least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int evo_map(const evo_driver* driver, void* map, unsigned dtype, unsigned rank, void* address,
                          const uint64_t* shape, const uint64_t* strides, const uint32_t* box,
                          unsigned swizzle) {
  static const uint32_t steps[5] = {1, 1, 1, 1, 1};
  return driver->encode(map, dtype, rank, address, shape, strides, box, steps, 0, swizzle, 3, 0);
}

/* 0; 1 where there is no driver; else what it says. */
static inline int evo_open(evo_driver* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const char* names[] = {
      "cuInit",           "cuModuleLoadData",       "cuModuleGetFunction", "cuFuncSetAttribute",
      "cuLaunchKernelEx", "cuTensorMapEncodeTiled", "cuMemsetD8Async"};
  void* found[7] = {0};
  for (int at = 0; at < 7; ++at)
    if (!library || !(found[at] = dlsym(library, names[at]))) return 1;
  memcpy(driver, found, sizeof found);
  return driver->init(0);
}

/* The nearest kernel, in doublings, whose code serves these sizes on a GPU of this compute capability; or
 * NULL. */
static inline const evo_kernel* evo_find(const evo_kernel* kernels, int count, int major, int minor,
                                         const char* dtype, const char* flags, const int64_t* size) {
  const evo_kernel* best = 0;
  double nearest = INFINITY;
  for (const evo_kernel* one = kernels; one < kernels + count; ++one) {
    int serves = one->major == major && (one->this_version_alone ? one->minor == minor : one->minor <= minor);
    double far = 0;
    for (int at = 0; at < one->sizes; ++at) {
      serves = serves && size[at] >= one->low[at] && size[at] <= one->high[at] && !(size[at] % one->step[at]);
      far += fabs(log2((double)size[at] / (double)one->own[at]));
    }
    if (serves && far < nearest && !strcmp(one->dtype, dtype) && !strcmp(one->flags, flags))
      best = one, nearest = far;
  }
  return best;
}

/* Into the current context. */
static inline int evo_load(const evo_driver* driver, const evo_kernel* kernel, evo_loaded* out) {
  void* module = 0;
  int status = driver->module_load(&module, kernel->cubin);
  out->kernel = kernel;
  if (!status) status = driver->module_function(&out->function, module, kernel->entry);
  return status ? status : driver->set_attribute(out->function, EVO_OVERRIDE, (int)kernel->smem_bytes);
}

/* Bytes of GPU memory that a call with these sizes needs as its `workspace`. */
static inline int64_t evo_workspace_bytes(const evo_kernel* kernel, const int64_t* size) {
  int64_t offset[EVO_ARGUMENTS], zeroed;
  return kernel->workspaces ? kernel->workspaces(size, offset, &zeroed) : 0;
}

/* Launches on a stream and does not wait. `buffer` has addresses on the GPU, in the order of the task;
 * `workspace` is of evo_workspace_bytes, for this stream alone until the kernel is done, with any content. */
static inline int evo_run(const evo_driver* driver, const evo_loaded* loaded, const int64_t* size,
                          void* const* buffer, void* workspace, void* stream) {
  const evo_kernel* kernel = loaded->kernel;
  evo_launch launch;
  evo_attribute attributes[2];
  evo_config config = {.smem_bytes = kernel->smem_bytes, .stream = stream, .attributes = attributes};
  memset(attributes, 0, sizeof attributes);
  for (int at = 0; at < EVO_ARGUMENTS; ++at) launch.argument[at] = launch.bytes[at];
  if (kernel->workspaces) {
    int64_t offset[EVO_ARGUMENTS], zeroed;
    kernel->workspaces(size, offset, &zeroed);
    int status = zeroed ? driver->set_bytes((uint64_t)workspace, 0, (size_t)zeroed, stream) : 0;
    if (status) return status;
  }
  if (kernel->fill(driver, size, buffer, workspace, &launch)) return 1;
  memcpy(config.grid, launch.grid, sizeof config.grid);
  memcpy(config.block, kernel->block, sizeof config.block);
  if (kernel->cluster[0] * kernel->cluster[1] * kernel->cluster[2] > 1) {
    attributes[0].id = EVO_CLUSTER;
    memcpy(attributes[config.attributes_count++].value, kernel->cluster, sizeof kernel->cluster);
  }
  if (kernel->cooperative) {
    attributes[config.attributes_count].id = EVO_COOPERATIVE;
    attributes[config.attributes_count++].value[0] = 1;
  }
  return driver->launch(&config, loaded->function, launch.argument, 0);
}
