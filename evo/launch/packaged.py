"""A task's kernels as one call, from an exported folder: `o = attention(q, k, v, causal=True)`. Nothing
here imports evo, and nothing is compiled: cubins lie beside it."""

from __future__ import annotations

import base64
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling

from .dispatch import Decided, Dispatch, Place
from .driver import Refused, launch, load
from .fast import Loaded, driver_addresses, table_of
from .operators import Operators
from .plans import Output, plan_of
from .reading import OUTPUT, Call, Form, Reader, output_and_flags
from .scratch import address_of, made, makers
from .traced import Means

ALIGNMENT = 16
"""Bytes: where kernels were checked to begin."""
MOST_LINES = 100
LIBRARY = "evo_fast.abi3.so"
Fallback = Callable[[Mapping[str, Tensor], Mapping[str, Any]], Any]
_log = logging.getLogger(__name__)


class NotServed(RuntimeError):
    """No kernel serves a call, and there is no fallback."""


@dataclass(frozen=True)
class _Served:
    """What runs a problem: a kernel that is loaded, or, without one, why the fallback does."""

    form: Form
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
    why: str
    loaded: Loaded | None = None
    launch: Mapping[str, Any] | None = None


class PackagedKernel:
    """The kernels of `folder`; `fallback(inputs, flags)` serves where none does, `pack(inputs, flags)` makes
    tensors that kernels read in an order of their own."""

    def __init__(
        self, folder: Path, package: str, fallback: Fallback | None = None, pack: Fallback | None = None
    ) -> None:
        self.folder, self.dispatch = folder, Dispatch(folder)
        self.reader = Reader(self.dispatch.record)
        self._flag_out = OUTPUT in self.reader.defaults
        self._fallback, self._pack = fallback, pack
        self._served: dict[tuple[object, ...], _Served] = {}
        self._loaded: dict[tuple[str, int], Loaded] = {}
        self._lock = threading.RLock()
        self._said: set[str] = set()
        self._table: Any = None
        self._known: Callable[..., Any] = _unknown
        means = Means(self._run, self._backward, self._writer, self._serves)
        self._operators = Operators(package, self.reader, means)

    def __call__(self, *tensors: Any, out: Any = None, **named: Any) -> Any:
        """Computes it: by place what is read, by name any tensor and flag; `out=` takes the output, or
        several by name. Where the task has a flag `out`, a text or a number is the flag, and an output
        can be given by its name besides. Gives the output, or several by name. A kernel runs on torch's
        current stream, and nothing waits.

        The fallback serves tensors on no GPU, those that require a gradient, that are not contiguous or do
        not begin at a multiple of 16 bytes, and what no kernel serves; the log says each reason once.
        TypeError or ValueError where the arguments are not the task's; NotServed where nothing serves
        them."""
        if self._flag_out:
            out, named = output_and_flags(out, named)
        if is_dynamo_compiling():
            usual = self._operators.usual.get((len(tensors), *named)) if out is None else None
            if usual is not None and (*named.values(),) in usual:
                return usual[*named.values(),](*tensors)
        else:
            known = self._known(tensors, out, named)
            if known is not None:
                return known
        if is_compiling():
            return self._operators.traced(self.reader.read(tensors, out, named))
        return self._computed(tensors, out, named)

    def _computed(self, tensors: tuple[Any, ...], out: Any, named: dict[str, Any]) -> Any:
        """What the call gives; the next such call is known."""
        call = self.reader.read(tensors, out, named)
        written = self._written(call)
        self._learn(call, tensors, out, named)
        return next(iter(written.values())) if len(written) == 1 else written

    def explain(self, *tensors: Any, place: Place | None = None, **named: Any) -> str:
        """What would serve such a call, and why; as on the GPU `place`, wherever the tensors lie. Nothing is
        computed."""
        call = self.reader.read(tensors, None, named)
        if place is None:
            served = self._serve(call)
            why = served.why or _obstacle(call)
            return f"{self._name()}: {why}" if why or served.launch is None else str(served.launch["kernel"])
        decided = self._decide(call, place)
        why = _obstacle(call)
        if why or decided.kernel is None:
            return f"{self._name()}: {why or decided.why}"
        return f"{decided.kernel['name']} ({decided.arch}): {decided.why}"

    def pack(self, **named: Any) -> dict[str, Tensor]:
        """What a call takes besides, made once of the tensors that it is of, with flags: for weights of 4
        bits their tiles. {} where there is nothing to pack."""
        flags = self.reader.flags(named)
        tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
        return dict(self._pack(tensors, flags)) if self._pack else {}

    def table(self) -> str:
        """The decisions, as text."""
        return self.dispatch.text()

    def __repr__(self) -> str:
        return f"<{self.dispatch.record['task']}: {len(self.dispatch.kernels)} kernels, else {self._name()}>"

    def _name(self) -> str:
        return self.dispatch.fallback or "nothing"

    # ---- decisions

    def _decide(self, call: Call, place: Place) -> Decided:
        try:
            dtype, sizes = self.reader.problem(call)
        except LookupError as error:
            return Decided(None, "", {}, str(error))
        return self.dispatch.decide(place, dtype, call.flags, sizes)

    def _serve(self, call: Call) -> _Served:
        """What serves calls like this one, decided once."""
        found = self._served.get(call.key)
        if found is None:
            with self._lock:
                found = self._served[call.key] = self._decided(call)
        return found

    def _decided(self, call: Call) -> _Served:
        form = self.reader.form(call.flags)
        try:
            shapes, dtypes = self.reader.buffers(call)
        except LookupError as error:
            return _Served(form, {}, {}, str(error))
        index = call.device.index
        if call.device.type != "cuda" or index is None:
            return _Served(form, shapes, dtypes, f"the tensors lie on {call.device}")
        decided = self._decide(call, place_of(index))
        if decided.kernel is None:
            return _Served(form, shapes, dtypes, decided.why)
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("call it once with such tensors before a CUDA graph is captured")
        try:
            loaded = self._load(decided, index)
        except (Refused, OSError) as error:
            return _Served(form, shapes, dtypes, f"{decided.kernel['name']} does not run here: {error}")
        _log.info("%s serves on %s: %s", decided.kernel["name"], call.device, decided.why)
        said = {**decided.launch, "kernel": f"{decided.kernel['name']} ({decided.arch}): {decided.why}"}
        return _Served(form, shapes, dtypes, "", loaded, said)

    def _load(self, decided: Decided, index: int) -> Loaded:
        assert decided.kernel is not None
        file = decided.kernel["cubins"][decided.arch]
        key = (file, index)
        if key not in self._loaded:
            smem = decided.launch["smem_bytes"]
            self._loaded[key] = load(index, self._cubin(file), decided.kernel["entry"], smem)
        return self._loaded[key]

    def _cubin(self, file: str) -> bytes:
        """Of a folder that may hold text alone it is base64."""
        path = self.folder / file
        return (
            path.read_bytes()
            if path.is_file()
            else base64.b64decode((self.folder / f"{file}.b64").read_text())
        )

    # ---- what is computed

    def _written(self, call: Call) -> dict[str, Tensor]:
        served = self._serve(call)
        self.reader.check_outputs(call, served.shapes, served.dtypes)
        why = served.why or _obstacle(call)
        if why or served.loaded is None or served.launch is None:
            return self._fall_back(call, served, why)
        buffers = {**call.read, **call.outputs}
        for name in served.form.made:
            if name not in buffers:
                buffers[name] = torch.empty(
                    served.shapes[name], dtype=served.dtypes[name], device=call.device
                )
        with torch.cuda.device(call.device):
            memory = {**buffers, **made(served.launch["workspaces"], call.device)}
            addresses = {name: address_of(one) for name, one in memory.items()}
            launch(served.loaded, served.launch, addresses, torch.cuda.current_stream().cuda_stream)
        return {name: buffers[name] for name in served.form.written}

    def _fall_back(self, call: Call, served: _Served, why: str) -> dict[str, Tensor]:
        if self._fallback is None:
            raise NotServed(f"no kernel serves this call of {self.dispatch.record['task']}: {why}")
        if why not in self._said and len(self._said) < MOST_LINES:
            self._said.add(why)
            _log.warning("%s serves, not a kernel: %s", self._name(), why)
        written = {}
        for name, value in self._outputs(call, served).items():
            given = call.outputs.get(name, call.read.get(name))
            gradient = value.requires_grad or (given is not None and given.requires_grad)
            if given is not None and gradient and torch.is_grad_enabled():
                raise ValueError(
                    f"{name} is written in place, which has no gradient: call it within no_grad()"
                )
            written[name] = value if given is None else given.copy_(value)
        return written

    def _outputs(self, call: Call, served: _Served) -> dict[str, Tensor]:
        """What the fallback computes, in the shapes and types of the task."""
        assert self._fallback is not None
        found, names = self._fallback(call.read, call.flags), served.form.written
        if not isinstance(found, Mapping):
            found = dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))
        return {
            name: found[name]
            .reshape(served.shapes.get(name, found[name].shape))
            .to(served.dtypes.get(name, found[name].dtype))
            for name in names
        }

    # ---- for the compiled table and for torch.compile

    def _learn(self, call: Call, tensors: tuple[Any, ...], out: Any, named: dict[str, Any]) -> None:
        """The next such call goes straight to its launch."""
        served = self._serve(call)
        if served.loaded is None or served.launch is None or _obstacle(call) or not self._opened():
            return
        values = (*tensors, out, *named.values())
        at = {id(value): place for place, value in enumerate(values)}
        given = {**call.read, **call.outputs}
        places = {name: at[id(tensor)] for name, tensor in given.items() if id(tensor) in at}
        if len(set(places.values())) != len(given):
            return
        sources = {**places, **{name: -1 - number for number, name in enumerate(served.form.made)}}
        outputs = [self._output(name, served, places, call) for name in served.form.made]
        results = [(name, sources[name]) for name in served.form.written]
        with self._lock:
            scratch = makers(served.launch["workspaces"], call.device)
            plan = plan_of(served.launch, served.loaded, sources, outputs, results, scratch)
            self._table.add(plan, tensors, out, named)

    def _output(self, name: str, served: _Served, places: Mapping[str, int], call: Call) -> Output:
        empty = {"size": served.shapes[name], "dtype": served.dtypes[name], "device": call.device}
        return Output(places[name] if name in call.outputs else -1, empty)

    def _opened(self) -> bool:
        with self._lock:
            if self._table is None:
                try:
                    self._table = table_of(self.folder / LIBRARY, self.reader.names)
                    self._table.drive(*driver_addresses())
                    self._known = self._table.call
                except (ImportError, OSError, RuntimeError) as error:
                    self._table = False
                    _log.warning("a call costs the host at least 15 µs more: %s", error)
            return bool(self._table)

    def _run(self, tensors: tuple[Tensor, ...], flags: dict[str, Any]) -> Any:
        """For an operator, what `__call__` gives."""
        return self(*tensors, **flags)

    def _writer(self, flags: dict[str, Any]) -> Callable[..., None]:
        """For an operator, `__call__` with these flags and an output."""

        def write(*tensors: Tensor, out: Tensor) -> None:
            if self._known(tensors, out, flags) is None:
                with torch.no_grad():
                    self._computed(tensors, out, flags)

        return write

    def _serves(self, tensors: tuple[Tensor, ...], flags: dict[str, Any]) -> bool:
        """For an operator: whether a kernel is there for such tensors, which need no content."""
        call = self.reader.read(tensors, None, flags)
        index = call.device.index
        return index is not None and self._decide(call, place_of(index)).kernel is not None

    def _backward(
        self, tensors: Sequence[Tensor], flags: dict[str, Any], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        """For an operator: the gradient of the fallback, computed again."""
        if self._fallback is None:
            raise RuntimeError("there is no fallback, and so no gradient: call it within torch.no_grad()")
        with torch.enable_grad():
            again = [x.detach().requires_grad_(x.is_floating_point()) for x in tensors]
            call = self.reader.read(tuple(again), None, flags)
            served = self._serve(self.reader.read(tuple(tensors), None, flags))
            outputs = [self._outputs(call, served)[name] for name in served.form.written]
            wanted = [x for x in again if x.requires_grad]
            found = iter(torch.autograd.grad(outputs, wanted, list(grads), allow_unused=True))
        pulled = [next(found) if x.requires_grad else None for x in again]
        pairs = zip(pulled, tensors, strict=True)
        return [torch.zeros_like(x) if grad is None else grad.contiguous() for grad, x in pairs]


@cache
def place_of(index: int) -> Place:
    """A GPU of this machine."""
    about = torch.cuda.get_device_properties(index)
    return Place(about.name, (about.major, about.minor))


def _obstacle(call: Call) -> str:
    """Why no kernel may take these tensors; "" where one may."""
    gradients = torch.is_grad_enabled()
    for name, tensor in itertools.chain(call.read.items(), call.outputs.items()):
        if gradients and tensor.requires_grad:
            return f"{name} requires a gradient"
        if not tensor.is_contiguous():
            return f"{name} is not contiguous"
        if tensor.data_ptr() % ALIGNMENT:
            return f"{name} does not begin at a multiple of {ALIGNMENT} bytes"
    return ""


def _unknown(*_: Any) -> None:
    """Before a kernel has served."""
