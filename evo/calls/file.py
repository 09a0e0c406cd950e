"""The file of recorded calls: .safetensors, or .npz.

A tensor is named `CALL.BUFFER`: "0.x" is what the first call has in the task's buffer x. The file of a single
call may leave out the number. What the problem has besides sizes is metadata, text by name: "0.task" is the
task of the first call and "0.FLAG" its flag; without a number it is so for every call. In .npz, which has no
metadata, such an entry is an array without dimensions. There are no bf16 and no fp8 in .npz.

Only the headers are read until a call's tensors are asked for. Nothing of a file is executed: a pickle in an
.npz is refused.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.dtype import DTYPES
from evo.errors import EvoError, MachineError, UsageError

if TYPE_CHECKING:  # importing torch takes seconds: only what reads tensors imports it
    from torch import Tensor

MOST_BYTES = 4 << 30
"""A file has at most so many bytes, and so have its tensors when they are unpacked."""
SUFFIXES = (".safetensors", ".npz")
_FORMS = f"a file of calls is {' or '.join(SUFFIXES)}: docs/your-own-data.md"
_NUMBERED = re.compile(r"(0|[1-9][0-9]{0,5})\.(.+)", re.DOTALL)
_SAFETENSORS = {
    **{"F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64", "F8_E4M3": "fp8", "BOOL": "bool"},
    **{f"{kind}{bits}": f"{kind.lower()}{bits}" for kind in "IU" for bits in (8, 16, 32, 64)},
}
"""The format's names of types, and ours."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a file, not read yet: its name there, its shape in elements, and its type (a name of
    evo.dtype, or the file's own name of a type that evo has not)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RecordedCall:
    """A call of a file: its number there, its tensors by the names of buffers, and what its metadata say."""

    number: int
    entries: Mapping[str, Entry]
    said: Mapping[str, str] = field(default_factory=dict)


def read_calls(path: Path) -> list[RecordedCall]:
    """The calls of a file by number; only headers are read. UsageError where it is no such file, MachineError
    where the package that reads it is absent."""
    _refuse_size(path, path.stat().st_size if _is_file(path) else 0)
    with _blamed(path):
        entries, said = (_npz if path.suffix == ".npz" else _safetensors)(path)
    if not entries:
        raise UsageError(f"{path} has no tensors", _FORMS)
    found: dict[int, dict[str, Entry]] = {}
    bare = [entry.name for entry in entries if not _NUMBERED.fullmatch(entry.name)]
    numbered = [entry.name for entry in entries if entry.name not in bare]
    if bare and numbered:
        hint = f"number all of them ({numbered[0]}), or none in a file of one call"
        raise UsageError(f"{path}: {bare[0]} has no call's number, and {numbered[0]} has one", hint)
    for entry in entries:
        number, buffer = split_name(entry.name)
        found.setdefault(number or 0, {})[buffer] = entry
    return [RecordedCall(number, found[number], _said_of(said, number)) for number in sorted(found)]


def split_name(name: str) -> tuple[int | None, str]:
    """The call's number and the rest: (3, "x") for "3.x", (None, "x") for "x"."""
    match = _NUMBERED.fullmatch(name)
    return (int(match[1]), match[2]) if match else (None, name)


def _said_of(said: Mapping[str, str], number: int) -> dict[str, str]:
    """The metadata of a call: what is said of all, and what is said of it."""
    of_all = {name: text for name, text in said.items() if split_name(name)[0] is None}
    own = {split_name(name)[1]: text for name, text in said.items() if split_name(name)[0] == number}
    return {**of_all, **own}


def read_tensors(path: Path, call: RecordedCall) -> dict[str, Tensor]:
    """The tensors of a call by the names of buffers, contiguous, on the host."""
    import torch

    with _blamed(path):
        if path.suffix == ".npz":
            import numpy as np

            with np.load(path, allow_pickle=False) as arrays:
                return {
                    buffer: torch.from_numpy(_native(arrays[entry.name]))
                    for buffer, entry in call.entries.items()
                }
        with _opened(path) as file:
            return {buffer: file.get_tensor(entry.name) for buffer, entry in call.entries.items()}


def _native(array: Any) -> Any:
    """In the order of rows and of bytes that torch has."""
    import numpy as np

    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def write_calls(path: Path, tensors: Mapping[str, Tensor], said: Mapping[str, str]) -> None:
    """Replaces the file at once: `tensors` (contiguous, on the host) and metadata by their full names.
    MachineError where it cannot be written."""
    import torch

    beside = path.with_name(f".{path.name}.part{path.suffix}")
    try:
        if path.suffix == ".npz":
            import numpy as np

            arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
            if both := arrays.keys() & said.keys():
                hint = "one is a tensor and one a flag: write a .safetensors file, which has both"
                raise UsageError(f"{path} cannot have {min(both)} twice", hint)
            arrays |= {name: np.asarray(text) for name, text in said.items()}
            np.savez(beside, **arrays)
        else:
            with torch.no_grad():
                _library(path, "safetensors.torch").save_file(dict(tensors), beside, metadata=dict(said))
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise MachineError(f"cannot write {path}: {error.strerror or error}", "") from error


def check_form(path: Path) -> None:
    """Raises what stands in the way of a file of this name: its suffix, its folder, a package."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is neither .safetensors nor .npz", _FORMS)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", "make it first")
    if path.suffix != ".npz":
        _library(path, "safetensors.torch")


def holds(path: Path, dtype: str) -> bool:
    """Whether such a file has that type."""
    return path.suffix != ".npz" or DTYPES[dtype].torch_name not in ("bfloat16", "float8_e4m3fn")


# ---------------------------------------------------------------------------------- the two forms


def _safetensors(path: Path) -> tuple[list[Entry], dict[str, str]]:
    with _opened(path) as file:
        entries = []
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            head = file.get_slice(name)
            kind = str(head.get_dtype())
            entries.append(Entry(name, tuple(head.get_shape()), _SAFETENSORS.get(kind, kind)))
        return entries, dict(file.metadata() or {})


def _opened(path: Path) -> Any:
    return _library(path, "safetensors").safe_open(path, framework="pt")


def _library(path: Path, module: str) -> Any:
    """The package `safetensors`. MachineError where it is missing or broken."""
    from importlib import import_module

    try:
        import safetensors  # noqa: F401 - the door to the library is here

        return import_module(module)
    except ImportError as error:
        hint = "pip install safetensors; or a .npz file, which has no bf16"
        raise MachineError(f"{path} needs the package safetensors, which is not installed", hint) from error


def _npz(path: Path) -> tuple[list[Entry], dict[str, str]]:
    """Shapes and types of the arrays; those without dimensions are metadata."""
    import numpy as np
    from numpy.lib import format as form

    entries, said, total = [], {}, 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                if member.filename == name or form.read_magic(file)[0] not in (1, 2, 3):
                    raise UsageError(f"{path}: {member.filename} is no array", _FORMS)
            with archive.open(member) as file:
                version = form.read_magic(file)
                read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
                shape, _, dtype = read(file)
            total += int(np.prod(shape, dtype=object)) * dtype.itemsize
            _refuse_size(path, total)
            if dtype.hasobject:
                hint = "write arrays of numbers: np.savez(FILE, **{'0.x': x.numpy()})"
                raise UsageError(f"{path}: {name} is a pickle, which evo does not run", hint)
            if shape == ():
                with np.load(path, allow_pickle=False) as arrays:
                    said[name] = str(arrays[name][()])
            else:
                entries.append(Entry(name, tuple(map(int, shape)), _numpy_type(path, name, dtype)))
    return entries, said


def _numpy_type(path: Path, name: str, dtype: Any) -> str:
    if dtype.kind == "V":
        hint = "write a .safetensors file: .npz has neither bf16 nor fp8"
        raise UsageError(f"{path}: {name} has a type that numpy does not know ({dtype.str})", hint)
    return next((known.name for known in DTYPES.values() if known.torch_name == dtype.name), dtype.name)


# ---------------------------------------------------------------------------------- what may be wrong


def _is_file(path: Path) -> bool:
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is neither .safetensors nor .npz", _FORMS)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise UsageError(f"{path} is {what}", "name a file of calls; `evo.capture` writes one")
    return True


def _refuse_size(path: Path, nbytes: int) -> None:
    if nbytes > MOST_BYTES:
        hint = "record fewer calls: evo.capture(path, calls_per_shape=2)"
        raise UsageError(f"{path} has {nbytes / 1e9:.1f} GB of {MOST_BYTES / 1e9:.1f} at most", hint)


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """Turns what libraries raise for a file that is broken into a UsageError."""
    try:
        yield
    except EvoError:
        raise
    except MemoryError as error:
        raise MachineError(f"not enough memory for {path}", "record fewer calls") from error
    except PermissionError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "") from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _broken(path, error) from error
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> UsageError:
    said = str(error).partition("\n")[0] or type(error).__name__
    return UsageError(f"{path} cannot be read: {said}", "is it whole? Write it again")
