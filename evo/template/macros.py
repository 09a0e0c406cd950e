"""Templates in plain CUDA: every parameter is a macro, defined before the text of the file.

Such a file compiles without evo where each tunable has a default of its own:

    #ifndef block_size_x
    #define block_size_x 128
    #endif
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evo.errors import BadTemplate
from evo.trial import Value

NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
KERNEL = re.compile(
    r"""(?P<c>extern\s*"C"\s*)?(?P<template>template\s*<[^>]*>\s*)?__global__(?P<between>[^;{(]*?
    (?:(?:__launch_bounds__|__cluster_dims__)
    \s*\((?:[^()]|\([^()]*\))*\)[^;{(]*?)*)\b(?!__)(?P<name>[A-Za-z_]\w*)\s*\(""",
    re.VERBOSE,
)
_TAKEN = (
    "align align_ always_inline cluster_dims constant device forceinline global grid_constant host inline "
    "launch_bounds managed noinline restrict shared x y z w threadIdx blockIdx blockDim gridDim warpSize "
    "alignas auto bool break case char class const constexpr continue default delete do double else enum "
    "explicit extern false float for friend goto if int long mutable namespace new operator private public "
    "register return short signed sizeof static struct switch template this true typedef typename union "
    "unsigned using virtual void volatile while"
)
"""Words that no macro may have for its name: parts of CUDA's own macros (__shared__ is made of `shared`), its
variables and their members, words of C++."""


@dataclass(frozen=True)
class Macros:
    """The text of a .cu file, and what its parameters are defined as."""

    path: Path
    holes: Mapping[str, int]
    """Empty: the compiler finds a macro that is not defined and has no default."""
    text: str

    @classmethod
    def of(cls, path: Path) -> Macros:
        """The template of a .cu file."""
        return cls(path, {}, _with_c_names(path.read_text(encoding="utf-8")))

    def check(self, names: Iterable[str]) -> None:
        """BadTemplate if one of the `names` cannot be a macro's."""
        if broken := sorted(set(_TAKEN.split()) & set(names)):
            hint = f"choose another name, such as {broken[0]}_, in the .cu file and in the .py file"
            raise BadTemplate(f"{self.path}:1: no macro can be named {broken[0]}: CUDA uses this word", hint)

    def render(self, values: Mapping[str, Value]) -> str:
        """The source: a definition for each value, then the text of the file, whose lines keep their numbers
        in what compilers and the emulator say."""
        defined = [f"#define {name} {_text(value)}" for name, value in values.items()]
        return "\n".join([*defined, f'#line 1 "{self.path.name}"', self.text.rstrip(), ""])


def kernels_in(source: str) -> list[str]:
    """Names of the kernels of a CUDA source that can be launched, in their order; templates are none."""
    found = KERNEL.finditer(NO_CODE.sub(" ", source))
    return list(dict.fromkeys(match["name"] for match in found if not match["template"]))


def only_kernel(path: Path, source: str) -> str:
    """The one kernel of a source. BadTemplate where there is none, or more than one."""
    found = kernels_in(source)
    if len(found) != 1:
        hint = f'entry="{found[0]}"' if found else "__global__ void NAME(...) is missing"
        raise BadTemplate(
            f"{path}:1: the source has {len(found)} kernels: {', '.join(found) or 'none'}", hint
        )
    return found[0]


def _with_c_names(text: str) -> str:
    """The text with `extern "C"` before each kernel that has none: evo finds a kernel by its plain name."""
    if re.search(r'extern\s*"C"\s*\{', text):
        return text

    def declared(match: re.Match[str]) -> str:
        return match[0] if match["c"] or match["template"] else f'extern "C" {match[0]}'

    return KERNEL.sub(declared, text)


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
