/* The C ABI of the PTX interpreter: parse a module, list its entry points, launch one on host memory, read
 * the report.
 *
 * Rules of the whole interface
 *   - Addresses: global memory *is* host memory. A pointer that a kernel gets is the host address of a
 *     region. The regions of the launch have exact bounds, and anything outside them is out of bounds.
 *     `.const`, module-scope `.global` symbols and the kernel parameters live in memory of the interpreter.
 *     Symbols keep their values as long as the module is loaded, parameters for one launch.
 *   - Text is UTF-8 and NUL-terminated. The handle that it was got from owns it: it lives as long as the
 *     handle.
 *   - Several threads may launch from one module at once. A launch uses its own worker threads. It shares
 *     nothing with other launches but the memory of the regions, the module's `.global` symbols and the
 * grid's barrier.
 *   - Nothing throws across this boundary. No input (PTX text, sizes, addresses) may crash the process,
 *     except regions that do not exist.
 *   - Same PTX, same launch, same schedule, `threads` = 1, same values in `.global` symbols: same result and
 *     same report, bit for bit. With more threads the same holds for kernels whose CTAs do not communicate
 *     through global memory.
 */
#ifndef EVO_PTX_H
#define EVO_PTX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EVO_PTX_API __attribute__((visibility("default")))
#else
#define EVO_PTX_API
#endif

/* It goes up whenever a struct or the meaning of a call changes. Compare it with evo_ptx_abi_version() after
 * loading. */
#define EVO_PTX_ABI_VERSION 8

EVO_PTX_API uint32_t evo_ptx_abi_version(void);

/* The fastest tensor-core path that was compiled in: "avx512", "avx2" or "portable". */
EVO_PTX_API const char* evo_ptx_build(void);

/* ---- modules */

typedef struct evo_ptx_module evo_ptx_module;

/* Parses `nbytes` of PTX. On failure it returns NULL, the reason is in error[0..error_nbytes) ("PTX line 12:
 * ...") and the PTX line in *error_line (0 if the error has none). A module that holds an unsupported
 * instruction still loads. The entry points that contain or call it say so in evo_ptx_entry.unsupported; the
 * others can be launched. */
EVO_PTX_API evo_ptx_module* evo_ptx_parse(const char* text, size_t nbytes, char* error, size_t error_nbytes,
                                          uint32_t* error_line);
EVO_PTX_API void evo_ptx_module_free(evo_ptx_module* module);

/* ".target sm_90a" and ".version 9.0" of the module, without the leading word. */
EVO_PTX_API const char* evo_ptx_target(const evo_ptx_module* module);
EVO_PTX_API const char* evo_ptx_version(const evo_ptx_module* module);

typedef struct evo_ptx_entry {
  const char* name;             /* as in the PTX: mangled unless extern "C" */
  uint32_t param_count;         /* see evo_ptx_param_get */
  uint32_t param_nbytes;        /* size of the parameter block that a launch must pass */
  uint32_t static_smem;         /* bytes of .shared variables of fixed size, alignment included */
  uint32_t dynamic_smem_align;  /* of `extern __shared__`; 0: the kernel uses no dynamic shared memory */
  uint32_t local_nbytes;        /* .local bytes of one thread (stack frames included) */
  uint32_t max_threads;         /* .maxntid as a product; 0: not given */
  uint32_t required_threads[3]; /* .reqntid; zeros: not given */
  uint32_t required_cluster[3]; /* .reqnctapercluster (__cluster_dims__); zeros: not given */
  uint32_t min_ctas_per_sm;     /* .minnctapersm; 0: not given */
  uint32_t instruction_count;   /* static instructions, called functions included */
  const char* unsupported;      /* NULL, or the first unsupported instruction: "PTX line 40 (k.cu:12): ..." */
} evo_ptx_entry;

EVO_PTX_API uint32_t evo_ptx_entry_count(const evo_ptx_module* module);
/* Returns 0, or -1 when there is no such entry. */
EVO_PTX_API int evo_ptx_entry_get(const evo_ptx_module* module, uint32_t index, evo_ptx_entry* out);

typedef struct evo_ptx_param {
  const char* name;
  uint32_t offset; /* in the parameter block */
  uint32_t nbytes; /* 8 for a pointer; a by-value struct (CUtensorMap: 128) is its size */
  uint32_t align;
} evo_ptx_param;

EVO_PTX_API int evo_ptx_param_get(const evo_ptx_module* module, uint32_t entry, uint32_t index,
                                  evo_ptx_param* out);

/* Where a variable of the module (.global, .const) lies on the host, as long as the module is loaded: between
 * launches its `*nbytes` bytes may be written. NULL: there is none of that name. */
EVO_PTX_API void* evo_ptx_variable(const evo_ptx_module* module, const char* name, uint64_t* nbytes);

/* ---- tensor maps */

enum { EVO_PTX_TENSOR_MAP_NBYTES = 128 };

/* What cuTensorMapEncodeTiled would be told. All dimensions innermost first. */
typedef struct evo_ptx_tensor_map {
  uint64_t address;        /* host address of element (0, 0, ...), 16-byte aligned */
  uint32_t element_nbytes; /* 1, 2, 4, 8 */
  /* 1: elements outside `shape` may read as NaN; add, min and max reductions are floating point */
  uint32_t is_float;
  uint32_t is_bf16;            /* with element_nbytes 2 and is_float: bf16, not fp16 (for reductions) */
  uint32_t rank;               /* 1..5 */
  uint64_t shape[5];           /* elements */
  uint64_t strides[4];         /* bytes, of dimensions 1..rank-1; multiples of 16 */
  uint32_t box[5];             /* elements, each 1..256 */
  uint32_t element_strides[5]; /* 0 is taken as 1 */
  uint32_t swizzle;            /* bytes: 0, 32, 64, 128 */
  uint32_t nan_fill;           /* 0: elements outside `shape` read as zero, 1: as NaN */
} evo_ptx_tensor_map;

/* Encodes `map` into the interpreter's own 128-byte form of a CUtensorMap: put those bytes where the kernel
 * expects the map (in the parameter block of a __grid_constant__ parameter, or in a region). Returns 0, or -1
 * with the rule that `map` breaks (the rules of cuTensorMapEncodeTiled) in error. */
EVO_PTX_API int evo_ptx_tensor_map_encode(const evo_ptx_tensor_map* map, void* out128, char* error,
                                          size_t error_nbytes);

/* ---- launches */

typedef struct evo_ptx_region {
  const char* name; /* for error messages: "q" */
  uint64_t address; /* host address */
  uint64_t nbytes;
  int32_t writable;    /* 0: a store is an error, and reads cannot race */
  int32_t initialised; /* 0: reading a byte that this launch has not written is an error (check INIT) */
} evo_ptx_region;

/* What is checked besides bounds and alignment, which always are. */
enum evo_ptx_check {
  /* reads of uninitialised shared, local, global bytes */
  EVO_PTX_CHECK_INIT = 2,
  /* happens-before races, async-proxy and fence rules, accumulators of pending wgmma */
  EVO_PTX_CHECK_RACE = 4,
  EVO_PTX_CHECK_ALL = 6
};

/* Which cluster starts next, and which warp runs when several can. Every order is deterministic. */
enum evo_ptx_order {
  EVO_PTX_ORDER_FORWARD = 0,  /* lowest first, each warp until it blocks */
  EVO_PTX_ORDER_REVERSED = 1, /* highest first */
  EVO_PTX_ORDER_SEEDED = 2    /* pseudo-random picks and preemptions, from `seed` */
};

typedef struct evo_ptx_launch {
  uint32_t struct_nbytes; /* sizeof(evo_ptx_launch) */
  uint32_t entry;         /* index */
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];   /* 1,1,1 (or zeros): no cluster, unless the entry requires one */
  uint32_t dynamic_smem; /* bytes */
  /* Registers of a thread as launched, from ptxas: what setmaxnreg shares out. 0: not known, then .maxnreg
   * counts. Without that either, setmaxnreg has no effect, as ptxas would have it. */
  uint32_t registers;
  const void* params;     /* the parameter block, laid out as evo_ptx_param says */
  uint64_t params_nbytes; /* at least evo_ptx_entry.param_nbytes */
  const evo_ptx_region* regions;
  uint64_t region_count;
  /* 1: cp.async, bulk copies and TMA complete as late as legal and read their source then; 0: at once */
  uint32_t late_copies;
  /* 1: wgmma reads its operands and writes its accumulators as late as legal; 0: at once */
  uint32_t late_wgmma;
  uint32_t order;  /* evo_ptx_order */
  uint32_t checks; /* evo_ptx_check bits */
  uint64_t seed;
  uint32_t threads;  /* worker threads over which clusters are spread; 0 or 1: none besides the caller's */
  uint32_t sm_count; /* %nsmid; CTAs report %smid = index modulo it; 0: 132 */
  /* 1: %envreg1 and %envreg2 are the address of the grid's barrier, as grid.sync() of cooperative groups
   * takes it, and all CTAs are alive at once. The barrier keeps its state as long as the module is loaded. */
  uint32_t cooperative;
  /* 0: all clusters run; else only the last so many of the grid, and the others are left out. */
  uint32_t last_clusters;
  /* CTAs that are alive at once, of a grid that waits for others of its CTAs; 0: 2048. Not where clusters do
   * not start in order, or the launch is cooperative. */
  uint32_t resident;
  /* The launch is called a runaway when it has executed more warp instructions than this; 0: no limit. */
  uint64_t instruction_budget;
  /* NULL, or a flag that another thread sets non-zero to end the launch soon (kind ABORTED). */
  const volatile int32_t* abort_flag;
} evo_ptx_launch;

/* How a launch ended. */
enum evo_ptx_kind {
  EVO_PTX_OK = 0,
  EVO_PTX_REFUSED = 1, /* no GPU would launch this: grid, block, cluster, parameter bytes, shared memory */
  EVO_PTX_UNSUPPORTED = 2,   /* an instruction, or a form of it, that is not known; nothing has run */
  EVO_PTX_OUT_OF_BOUNDS = 3, /* outside every region, shared or local memory; a store to a read-only region */
  EVO_PTX_MISALIGNED = 4,
  EVO_PTX_UNINITIALISED = 5, /* read of bytes that were never written */
  EVO_PTX_RACE = 6,         /* two unordered accesses, one a write; bytes of a copy that was not waited for */
  EVO_PTX_PROXY = 7,        /* no fence.proxy.async, fence.mbarrier_init, wgmma.fence, or wgmma wait */
  EVO_PTX_SYNC = 8,         /* misuse of a barrier, mbarrier or warp collective: mask, counts, divergence */
  EVO_PTX_DEADLOCK = 9,     /* no warp can move */
  EVO_PTX_RUNAWAY = 10,     /* the instruction budget is spent */
  EVO_PTX_TRAP = 11,        /* trap, assert */
  EVO_PTX_BAD_OPERAND = 12, /* a value that the instruction does not allow: tensor map, descriptor, width */
  EVO_PTX_ABORTED = 13,     /* abort_flag */
  EVO_PTX_INTERNAL = 14     /* a bug of the interpreter, or out of memory */
};

/* "out of bounds" and so on. */
EVO_PTX_API const char* evo_ptx_kind_name(int32_t kind);

/* The first error of the launch (the lowest CTA that failed). Fields that do not apply are zero, "" or -1. */
typedef struct evo_ptx_error {
  int32_t kind;        /* evo_ptx_kind */
  const char* text;    /* one sentence: what is wrong, with the numbers */
  const char* message; /* for a person: the text with kernel, source line, thread and PTX line */
  const char* kernel;
  const char* file; /* CUDA source file and line, from .loc (nvcc -lineinfo); "" and 0 without */
  uint32_t line;
  uint32_t ptx_line;
  const char* ptx_text; /* the PTX statement */
  int32_t cta[3];       /* %ctaid, or -1 */
  int32_t thread[3];    /* %tid of the first offending lane, or -1 */
  int32_t warp;         /* in the CTA, or -1 */
  int32_t lane;
  uint32_t lanes;         /* mask of the lanes executing */
  uint64_t address;       /* as the kernel computed it (generic, global or shared); 0 if not a memory error */
  const char* space;      /* "global", "shared", "local", "const", "param" or "" */
  const char* buffer;     /* region or symbol that the address lies in or next to; "" if none */
  int64_t offset;         /* bytes from its start (may be negative or past its end) */
  uint32_t access_nbytes; /* size of the access of one lane */
  const char* other;      /* races: the other access, "warp 2, k.cu:31 (PTX line 200)"; else "" */
} evo_ptx_error;

typedef struct evo_ptx_counter {
  const char* name; /* see evo_ptx_report_counters */
  double value;
} evo_ptx_counter;

/* One static instruction (evo_ptx_report_instructions), or all of one CUDA line (evo_ptx_report_lines). */
typedef struct evo_ptx_work {
  const char* file; /* CUDA source; "" without -lineinfo */
  uint32_t line;
  uint32_t ptx_line;                /* instructions only; 0 for lines */
  const char* text;                 /* PTX statement; "" for lines */
  const char* instruction_class;    /* "int", "fp32", "mufu" ...; "" for lines */
  uint32_t static_count;            /* instructions: 1 */
  uint32_t executed_count;          /* of these, how many ran at least once: coverage */
  uint64_t warp_instructions;       /* times a warp executed it with at least one lane */
  uint64_t thread_instructions;     /* lanes summed */
  uint64_t shared_wavefronts;       /* shared-memory wavefronts with the bank conflicts that happened */
  uint64_t shared_wavefronts_ideal; /* the fewest that this many bytes need */
  uint64_t global_sectors;          /* 32-byte sectors touched a warp access */
  uint64_t global_nbytes;           /* bytes asked for */
} evo_ptx_work;

typedef struct evo_ptx_report evo_ptx_report;

/* Runs the launch to its end and returns its report (never NULL unless memory is out). Free it. */
EVO_PTX_API evo_ptx_report* evo_ptx_run(const evo_ptx_module* module, const evo_ptx_launch* launch);
EVO_PTX_API void evo_ptx_report_free(evo_ptx_report* report);

/* Its kind is OK when all went well. */
EVO_PTX_API const evo_ptx_error* evo_ptx_report_error(const evo_ptx_report* report);
/* Wall clock of the launch. */
EVO_PTX_API double evo_ptx_report_seconds(const evo_ptx_report* report);

/* Counters of the whole grid; *count is set. Always all names, in the same order:
 *
 *   ctas, warps, threads_launched   how much was launched
 *   instructions                    warp instructions
 *   thread_instructions             the same, lanes summed
 *   inst_int, inst_fp32, inst_fp16, inst_fp64, inst_mufu, inst_convert, inst_move, inst_predicate,
 *   inst_control, inst_load_global, inst_store_global, inst_load_shared, inst_store_shared,
 *   inst_load_local, inst_store_local, inst_load_const, inst_atomic, inst_async_copy, inst_matrix_move,
 *   inst_tensor, inst_warp, inst_barrier, inst_special
 *                                   warp instructions by class; they add up to `instructions`
 *   tensor_flop                     FLOP of mma, wmma, wgmma (2 m n k each)
 *   fp32_flop                       lanes; fma counts 2
 *   exp2                            lanes of ex2
 *   mufu                            lanes of ex2 lg2 rcp rsqrt sqrt sin cos tanh
 *   shared_wavefronts, shared_wavefronts_ideal, shared_bytes_read, shared_bytes_written
 *   global_sectors_read, global_sectors_written, global_bytes_read, global_bytes_written
 *                                   asynchronous copies included
 *   async_copy_bytes                bytes of cp.async, bulk and TMA copies, both directions
 *   barrier_waits                   times a warp waited at bar.sync / barrier.cluster
 *   mbarrier_waits                  times a warp found an mbarrier phase not complete and had to wait
 *   divergent_branches              branches that split the active lanes
 *   max_resident_ctas               most CTAs that were alive at once in the interpreter */
EVO_PTX_API const evo_ptx_counter* evo_ptx_report_counters(const evo_ptx_report* report, uint32_t* count);

/* The share of the static instructions that ran at least once; 1 where nothing was launched. */
EVO_PTX_API double evo_ptx_report_coverage(const evo_ptx_report* report);
/* The profile: every static instruction in program order. The first call works it out. NULL: out of memory.
 */
EVO_PTX_API const evo_ptx_work* evo_ptx_report_instructions(evo_ptx_report* report, uint32_t* count);
/* The same summed by CUDA source line, sorted by file and line. */
EVO_PTX_API const evo_ptx_work* evo_ptx_report_lines(evo_ptx_report* report, uint32_t* count);

/* ---- the table */

/* One row of the instruction table: the living definition of what is supported. */
typedef struct evo_ptx_row {
  const char* pattern; /* "fma .rn|rz|rm|rp ?ftz ?sat .f32": words in order; `?x` optional; `a|b` one of */
  const char* family;  /* "integer", "memory", "tensor" and so on: the group of rows that it stands in */
  const char* instruction_class; /* counter class, without the "inst_" */
  const char* note;              /* what differs from the hardware or is limited; "" if nothing */
} evo_ptx_row;

EVO_PTX_API const evo_ptx_row* evo_ptx_table(uint32_t* count);

#ifdef __cplusplus
}
#endif
#endif /* EVO_PTX_H */
