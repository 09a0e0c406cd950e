"""The PTX interpreter's C ABI (ptx/evo_ptx.h) as Python sees it: constants and structs, field by field."""

from __future__ import annotations

import ctypes as c

ABI_VERSION = 8
TENSOR_MAP_NBYTES = 128

OK = 0
REFUSED, UNSUPPORTED, OUT_OF_BOUNDS, MISALIGNED, UNINITIALISED, RACE, PROXY, SYNC = range(1, 9)
DEADLOCK, RUNAWAY, TRAP, BAD_OPERAND, ABORTED, INTERNAL = range(9, 15)

CHECK_INIT, CHECK_RACE = 2, 4
CHECK_ALL = CHECK_INIT | CHECK_RACE


class CEntry(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("param_count", c.c_uint32),
        ("param_nbytes", c.c_uint32),
        ("static_smem", c.c_uint32),
        ("dynamic_smem_align", c.c_uint32),
        ("local_nbytes", c.c_uint32),
        ("max_threads", c.c_uint32),
        ("required_threads", c.c_uint32 * 3),
        ("required_cluster", c.c_uint32 * 3),
        ("min_ctas_per_sm", c.c_uint32),
        ("instruction_count", c.c_uint32),
        ("unsupported", c.c_char_p),
    )


class CParam(c.Structure):
    _fields_ = (("name", c.c_char_p), ("offset", c.c_uint32), ("nbytes", c.c_uint32), ("align", c.c_uint32))


class TensorMap(c.Structure):
    """What cuTensorMapEncodeTiled would be told; dimensions innermost first."""

    _fields_ = (
        ("address", c.c_uint64),
        ("element_nbytes", c.c_uint32),
        ("is_float", c.c_uint32),
        ("is_bf16", c.c_uint32),
        ("rank", c.c_uint32),
        ("shape", c.c_uint64 * 5),
        ("strides", c.c_uint64 * 4),
        ("box", c.c_uint32 * 5),
        ("element_strides", c.c_uint32 * 5),
        ("swizzle", c.c_uint32),
        ("nan_fill", c.c_uint32),
    )


class CRegion(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("address", c.c_uint64),
        ("nbytes", c.c_uint64),
        ("writable", c.c_int32),
        ("initialised", c.c_int32),
    )


class CLaunch(c.Structure):
    _fields_ = (
        ("struct_nbytes", c.c_uint32),
        ("entry", c.c_uint32),
        ("grid", c.c_uint32 * 3),
        ("block", c.c_uint32 * 3),
        ("cluster", c.c_uint32 * 3),
        ("dynamic_smem", c.c_uint32),
        ("registers", c.c_uint32),
        ("params", c.c_char_p),
        ("params_nbytes", c.c_uint64),
        ("regions", c.POINTER(CRegion)),
        ("region_count", c.c_uint64),
        ("late_copies", c.c_uint32),
        ("late_wgmma", c.c_uint32),
        ("order", c.c_uint32),
        ("checks", c.c_uint32),
        ("seed", c.c_uint64),
        ("threads", c.c_uint32),
        ("sm_count", c.c_uint32),
        ("cooperative", c.c_uint32),
        ("last_clusters", c.c_uint32),
        ("resident", c.c_uint32),
        ("instruction_budget", c.c_uint64),
        ("abort_flag", c.POINTER(c.c_int32)),
    )


class CError(c.Structure):
    _fields_ = (
        ("kind", c.c_int32),
        ("text", c.c_char_p),
        ("message", c.c_char_p),
        ("kernel", c.c_char_p),
        ("file", c.c_char_p),
        ("line", c.c_uint32),
        ("ptx_line", c.c_uint32),
        ("ptx_text", c.c_char_p),
        ("cta", c.c_int32 * 3),
        ("thread", c.c_int32 * 3),
        ("warp", c.c_int32),
        ("lane", c.c_int32),
        ("lanes", c.c_uint32),
        ("address", c.c_uint64),
        ("space", c.c_char_p),
        ("buffer", c.c_char_p),
        ("offset", c.c_int64),
        ("access_nbytes", c.c_uint32),
        ("other", c.c_char_p),
    )


class CCounter(c.Structure):
    _fields_ = (("name", c.c_char_p), ("value", c.c_double))


class CWork(c.Structure):
    _fields_ = (
        ("file", c.c_char_p),
        ("line", c.c_uint32),
        ("ptx_line", c.c_uint32),
        ("text", c.c_char_p),
        ("instruction_class", c.c_char_p),
        ("static_count", c.c_uint32),
        ("executed_count", c.c_uint32),
        ("warp_instructions", c.c_uint64),
        ("thread_instructions", c.c_uint64),
        ("shared_wavefronts", c.c_uint64),
        ("shared_wavefronts_ideal", c.c_uint64),
        ("global_sectors", c.c_uint64),
        ("global_nbytes", c.c_uint64),
    )


class CRow(c.Structure):
    _fields_ = (
        ("pattern", c.c_char_p),
        ("family", c.c_char_p),
        ("instruction_class", c.c_char_p),
        ("note", c.c_char_p),
    )
