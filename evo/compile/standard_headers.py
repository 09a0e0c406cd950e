"""Headers that a .cu file for nvcc includes or counts on, and that NVRTC lacks: nvcc reads those of the host.

NVRTC gets them as texts, by their names (nvrtcCreateProgram). Most take libcu++'s, which is `std` for device
code; its <cmath> takes 1.5 s to compile, so mathematics are NVRTC's own. `PRELUDE` comes before each source,
as nvcc begins each one with cuda_runtime.h, which includes <math.h>: macros and one type, so that no
instruction of a kernel depends on it."""

from __future__ import annotations

PRELUDE = "evo_prelude.h"
"""The name of the header that comes before each source."""
_MACROS = {
    "INFINITY": "__builtin_bit_cast(float, 0x7f800000)",
    "HUGE_VALF": "INFINITY",
    "HUGE_VAL": "((double)INFINITY)",
    "NAN": "__builtin_bit_cast(float, 0x7fffffff)",
    "M_E": "2.7182818284590452354",
    "M_LOG2E": "1.4426950408889634074",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
    # as libcu++ spells them
    "INT_MAX": "0x7fffffff",
    "INT_MIN": "(-INT_MAX - 1)",
    "UINT_MAX": "0xffffffff",
}
_FLOATS = {
    **{"FLT_MAX": "3.402823466e+38f", "FLT_MIN": "1.175494351e-38f", "FLT_EPSILON": "1.192092896e-7f"},
    **{"DBL_MAX": "1.7976931348623157e+308", "DBL_MIN": "2.2250738585072014e-308"},
    **{"DBL_EPSILON": "2.2204460492503131e-16", "FLT_DIG": "6", "DBL_DIG": "15"},
}
_FUNCTIONS = (
    "abs acos asin atan atan2 cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmax fmin "
    "fmod hypot isfinite isinf isnan ldexp log log10 log1p log2 lround nearbyint pow rint round sin sinh "
    "sqrt tan tanh trunc"
)
"""Of mathematics: what `std` has besides."""
_EMPTY = ("ctype.h", "cstdio", "iostream", "math.h", "stdio.h", "vector")
"""What they declare NVRTC has by itself (printf, mathematics), or no kernel can use."""
_OF_C = ("assert", "limits", "stddef", "stdint", "stdlib", "string", "time")
_OF_CPP = (
    *("array", "cassert", "climits", "complex", "cstddef", "cstdint", "cstdlib", "cstring", "ctime"),
    *("functional", "initializer_list", "limits", "numeric", "tuple", "type_traits", "utility"),
)
_ALGORITHM = """#pragma once
namespace std {
template <class T> __host__ __device__ void swap(T& a, T& b) { T kept = a; a = b; b = kept; }
template <class T>
__host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T>
__host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
}
"""


def _defined(macros: dict[str, str]) -> str:
    return "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in macros.items())


def _used(names: list[str]) -> str:
    return "".join(f"using ::{name};\n" for name in names)


def _of_device(name: str) -> str:
    spaces = "namespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n"
    return f"#pragma once\n#include <cuda/std/{name}>\n{spaces}"


HEADERS: dict[str, str] = {
    PRELUDE: "typedef unsigned int uint;\n" + _defined(_MACROS),
    **dict.fromkeys(_EMPTY, "\n"),
    **dict.fromkeys(("cfloat", "float.h"), _defined(_FLOATS)),
    "algorithm": _ALGORITHM,
    "cmath": "#pragma once\nnamespace std {\n"
    + "".join(f"using ::{name};\n" for name in _FUNCTIONS.split())
    + "}\n",
    **{f"{name}.h": f"#pragma once\n#include <cuda/std/c{name}>\n" for name in _OF_C},
    "inttypes.h": "#include <cuda/std/cstdint>\n",
    **{name: _of_device(name) for name in _OF_CPP},
}
"""The text of each header by its name."""
