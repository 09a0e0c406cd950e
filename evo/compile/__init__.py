"""Compilers: CUDA source to cubin and PTX, what ptxas says of it, C++ to a library; and NVIDIA's tools."""

from evo.compile.compiler import PARTS, Compiler, Part, find_compiler
from evo.compile.extension import build_table_library
from evo.compile.ninja import build_shared_library
from evo.compile.places import places_read, undeclared
from evo.compile.ptxas import assemble, disassemble, machine_code
from evo.compile.state import module_state
from evo.compile.toolkit import Toolkit, find_tool, host_compiler, toolkits

__all__ = [
    "PARTS",
    "Compiler",
    "Part",
    "Toolkit",
    "assemble",
    "build_shared_library",
    "build_table_library",
    "disassemble",
    "find_compiler",
    "find_tool",
    "host_compiler",
    "machine_code",
    "module_state",
    "places_read",
    "toolkits",
    "undeclared",
]
