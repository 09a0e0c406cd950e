// Stands in for NVIDIA's driver where there is no GPU: a kernel is a function of this process, which gets the
// launch and its parameters; contexts are numbers, and what is asked of them is written down.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "abi.hpp"

using evo::LaunchConfig;

static void* current_context = nullptr;
static int64_t pushes = 0, pops = 0, answer = 0;
static int64_t encodings = 0, capturing = 0, streams = 0;
static void* captured_stream = nullptr;
static LaunchConfig last;
static evo::LaunchAttribute last_attributes[2];

extern "C" {
int launch(const LaunchConfig* config, void* function, void** parameters, void**) {
    if (answer) return static_cast<int>(answer);
    last = *config;
    for (unsigned at = 0; at < config->attributes_count; ++at) last_attributes[at] = config->attributes[at];
    reinterpret_cast<void (*)(void**)>(function)(parameters);
    return 0;
}
int current(void** context) { return *context = current_context, 0; }
int make_current(void* context) { return current_context = context, 0; }
int push(void* context) { return ++pushes, current_context = context, 0; }
int pop(void** context) { return ++pops, current_context = *context, 0; }
int encode(void* map, uint32_t dtype, uint32_t rank, void* address, const uint64_t* shape,
           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, uint32_t, uint32_t swizzle,
           uint32_t promotion, uint32_t) {
    const uint64_t said[] = {dtype,  rank,   reinterpret_cast<uintptr_t>(address), shape[0], shape[1], strides[0],
                             box[0], box[1], steps[1],                             swizzle,  promotion};
    std::memcpy(map, said, sizeof said);
    ++encodings;
    return 0;
}
int capture(void* stream, int* status, uint64_t* id, void* graph, void*, void*) {
    *status = capturing && stream == captured_stream;
    *id = 100 + capturing;
    if (graph) *static_cast<void**>(graph) = reinterpret_cast<void*>(capturing);
    return 0;
}

// The same by the driver's own names, for evo/launch/driver.py.
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int index) { return *device = index + 40, 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = reinterpret_cast<void*>(device), 0; }
int cuCtxPushCurrent_v2(void* context) { return push(context); }
int cuCtxPopCurrent_v2(void** context) { return pop(context); }
int cuModuleLoadData(void** module, const void* cubin) {
    *module = const_cast<void*>(cubin);
    return std::memcmp(cubin, "cubin", 5) ? 209 : 0;
}
void scaled(void** parameters);
void told(void** parameters);
int cuModuleGetFunction(void** function, void*, const char* name) {
    *function = reinterpret_cast<void*>(std::strcmp(name, "told") ? scaled : told);
    return 0;
}
int cuFuncSetAttribute(void*, int which, int value) { return which == 8 && value > 1000 ? 1 : 0; }
int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters, void** extra) {
    return launch(config, function, parameters, extra);
}
int cuTensorMapEncodeTiled(void* map, uint32_t dtype, uint32_t rank, void* address, const uint64_t* shape,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, uint32_t interleave,
                           uint32_t swizzle, uint32_t promotion, uint32_t fill) {
    if (reinterpret_cast<uintptr_t>(map) % 64) return 1;
    return encode(map, dtype, rank, address, shape, strides, box, steps, interleave, swizzle, promotion, fill);
}
static int64_t modes = 0;
int cuThreadExchangeStreamCaptureMode(int* mode) { return modes = modes * 10 + *mode, *mode = 1, 0; }
int64_t capture_modes() { return modes; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    void* memory = bytes > 1 << 20 ? nullptr : std::malloc(bytes);
    *address = reinterpret_cast<uintptr_t>(memory);
    if (memory) std::memset(memory, 255, bytes);
    return memory ? 0 : 2;
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void* stream) {
    if (stream != &streams) return 400;
    std::memset(reinterpret_cast<void*>(address), value, bytes);
    return 0;
}
int cuStreamCreate(void** stream, unsigned flags) { return ++streams, *stream = &streams, flags == 1 ? 0 : 1; }
int cuStreamSynchronize(void* stream) { return stream == &streams ? 0 : 400; }
int cuStreamDestroy_v2(void* stream) { return --streams, stream == &streams ? 0 : 400; }
int64_t open_streams() { return streams; }

int cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void* graph, void* nodes, void* count) {
    return capture(stream, status, id, graph, nodes, count);
}
// A capture on `stream`, whose graph has a number; 0 ends it. A graph has one object.
void begin_capture(int64_t graph, void* stream) { capturing = graph, captured_stream = stream; }
struct Held {
    void* of;
    void (*destroy)(void*);
};
static Held held[8];
int cuUserObjectCreate(void** object, void* of, void (*destroy)(void*), unsigned count, unsigned flags) {
    return *object = new Held{of, destroy}, count == 1 && flags == 1 ? 0 : 1;
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
    held[reinterpret_cast<int64_t>(graph)] = *static_cast<Held*>(object);
    return count == 1 && flags == 1 ? 0 : 1;
}
void destroy_graph(int64_t graph) { held[graph].destroy(held[graph].of); }
int cuGetErrorName(int status, const char** name) { return *name = status == 209 ? "NO_BINARY" : "NO", 0; }

// out = scale * x, n elements of fp32
void scaled(void** parameters) {
    const float* x = *static_cast<float**>(parameters[0]);
    float* out = *static_cast<float**>(parameters[1]);
    const float scale = *static_cast<float*>(parameters[2]);
    const int n = *static_cast<int*>(parameters[3]);
    for (int at = 0; at < n; ++at) out[at] = scale * x[at];
}
// out = what a tensor map of x says of it
void told(void** parameters) { std::memcpy(*static_cast<void**>(parameters[1]), parameters[0], 88); }

void answer_with(int64_t status) { answer = status; }
void* context_now() { return current_context; }
int64_t maps_encoded() { return encodings; }
int64_t pushes_and_pops() { return pushes * 1000 + pops; }
unsigned last_number(int at) {
    const unsigned said[] = {last.grid[0],           last.grid[1],
                             last.grid[2],           last.block[0],
                             last.smem_bytes,        last.attributes_count,
                             last_attributes[0].id,  last_attributes[0].value[0],
                             last_attributes[1].id,  last_attributes[1].value[0]};
    return said[at];
}
}
