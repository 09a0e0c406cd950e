"""Which variables of a module live on between launches: those that its code may write.

A module-level variable is harmless if its address only ever reaches loads: then it is a table. NVIDIA's own
tables (`__cudart_i2opi_f` of sinf), `static const` arrays and virtual tables are such; names decide nothing.
So the analysis follows each address through the PTX: through registers, calls, local memory and tables of
pointers, whatever the order of the statements. Whatever it cannot follow counts as written. `.const`
variables and the kernel's own parameters are followed alike: nothing may write them either. Printing and
failed assertions may take an address; a heap (`malloc`) lives on too.

Not followed: what a program learns of an address by comparing it, bit by bit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from evo.compile.ptx_text import code_of

PARAMETERS = "the kernel's parameters"
_PRINTS = frozenset({"vprintf", "__assertfail"})
"""Functions of NVIDIA's that read what they are given."""
_HEAP = frozenset({"malloc", "free", "cudaMalloc", "cudaFree", "cudaLaunchDevice", "cudaLaunchDeviceV2"})
_READ_ONLY = frozenset({"ld", "ldu", "prefetch", "prefetchu", "isspacep", "applypriority", "createpolicy"})
_SPACE = re.compile(r"\.(?:global|const)\b")
_QUALIFIERS = ".visible", ".weak", ".extern", ".common"
_HEADER = re.compile(r"\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?[^;{]*([;{])")
_LEADING = re.compile(r"(?:\s|[{}]|[\w$%]+\s*:(?!:))*")
_GUARD = re.compile(r"@\s*!?\s*[\w$%]+\s+")
_OPCODE = re.compile(r"([a-z]\w*(?:\s*(?:\.|::)\s*\w+)*)\s*(.*)", re.DOTALL)
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*")
_BASE = re.compile(r"local memory of [\w$]+")
_CALL = re.compile(r"\bcall\b[^;]*;")
_CALLEE = re.compile(r"([\w$%]+)\s*,\s*\(([^)]*)\)(?:\s*,\s*[\w$]+\s*)?;")
_DEPOT = re.compile(r"\.local\b[^;]*?([\w$]+)(?:\[[^\]]*\])*\s*;")


def module_state(ptx: str) -> tuple[str, ...]:
    """What a kernel of this PTX writes and what lives on between launches: module-level variables, its own
    parameters (PARAMETERS), the heap (`malloc()`). In the order of the text."""
    return _Flow(ptx).written()


@dataclass(frozen=True)
class _Statement:
    """One instruction: its opcode in words, and by operand whether it is an address and what it names."""

    words: tuple[str, ...]
    operands: tuple[tuple[bool, tuple[str, ...]], ...]
    coordinates: tuple[bool, ...]
    """By operand: whether it has coordinates, as tensor maps have."""
    end: int
    text: str

    @property
    def offset(self) -> int | None:
        """What an addition adds, where that is a number."""
        last = self.text.rpartition(",")[2].strip()
        return int(last) if re.fullmatch(r"-?\d+", last) else None

    @property
    def op(self) -> str:
        return self.words[0]


@dataclass
class _Function:
    """A function with a body: `text[begin:end]`."""

    name: str
    entry: bool
    formals: tuple[str, ...]
    wide: tuple[bool, ...]
    """By formal parameter: whether an address fits into it."""
    begin: int
    end: int
    text: str

    def mentions(self, name: str) -> bool:
        """Whether the name, as a whole word, is in the body."""
        return next(_places(self.text, name, self.begin, self.end), None) is not None

    def takes_address(self, formal: str) -> bool:
        """Whether a parameter is used otherwise than by loading from it."""
        for place in _places(self.text, formal, self.begin, self.end):
            begin = max(self.text.rfind(";", 0, place), self.begin) + 1
            if "ld.param" not in self.text[begin:place]:
                return True
        return False

    def naming(self, name: str) -> list[_Statement]:
        """The instructions that name something."""
        found: dict[int, _Statement | None] = {}
        for place in _places(self.text, name, self.begin, self.end):
            begin = max(self.text.rfind(";", 0, place), self.begin) + 1
            if begin not in found:
                found[begin] = self._statement(begin)
        return [statement for statement in found.values() if statement]

    def _statement(self, begin: int) -> _Statement | None:
        if begin not in self._parsed:
            end = self.text.find(";", begin, self.end)
            self._parsed[begin] = _parsed(self.text[begin:end], end)
        return self._parsed[begin]

    @cached_property
    def _parsed(self) -> dict[int, _Statement | None]:
        return {}


Value = tuple[int, str]
"""A register or a parameter: the function it is in, and its name."""


@dataclass
class _Flow:
    """Follows addresses through a module. `holds` says which memory a register may point to. `content` says
    where the addresses that lie in a memory or a parameter may point to. Local memory has a name for each
    function and, where an address is that of one variable in it, for each offset."""

    ptx: str
    holds: defaultdict[Value, set[str]] = field(default_factory=lambda: defaultdict(set))
    content: defaultdict[str | Value, set[str]] = field(default_factory=lambda: defaultdict(set))
    found: set[str] = field(default_factory=set)
    """Memory that something may write."""
    _waiting: list[Value] = field(default_factory=list)
    _local_followed: bool = False

    def written(self) -> tuple[str, ...]:
        self.text = code_of(self.ptx)
        self.functions = list(_functions(self.text))
        self.prints = _PRINTS - {f.name for f in self.functions}
        self.variables = self._declared()
        for name in self.variables:
            self._look_at(name)
        self._follow_parameters()
        while self._waiting:
            at, name = self._waiting.pop()
            for statement in self.functions[at].naming(name):
                self._step(at, statement)
        heap = [f"{name}()" for name in sorted(_HEAP) if any(f.mentions(name) for f in self.functions)]
        ordered = (*self.variables, PARAMETERS)
        return (*(name for name in ordered if name in self.found), *heap)

    def _declared(self) -> dict[str, None]:
        """The module's variables that some function mentions, or that a mentioned one points to."""
        initial: dict[str, str] = {}
        for found in _SPACE.finditer(self.text):
            end = self.text.find(";", found.end())
            if end < 0 or not _begins_statement(self.text, found.start()):
                continue
            said = self.text[found.end() : end]
            for declared in _split(re.sub(r"\.attribute\s*\([^)]*\)", "", said)):
                name, _, value = declared.partition("=")
                initial[_NAME.findall(re.sub(r"\[.*", "", name, flags=re.DOTALL))[-1]] = value
        self._initial_names = {name for text in initial.values() for name in _NAME.findall(text)}
        for name, text in initial.items():
            self.content[name] = {other for other in _NAME.findall(text) if other in initial}
        return dict.fromkeys(initial)

    def _look_at(self, name: str) -> None:
        """Follows the address of a variable through all statements that name it."""
        for at, function in enumerate(self.functions):
            if function.mentions(name):
                for statement in function.naming(name):
                    self._step(at, statement)

    def _follow_parameters(self) -> None:
        """Follows the addresses of the kernels' own parameters, where code takes one."""
        for at, function in enumerate(self.functions):
            for formal in function.formals if function.entry else ():
                if function.takes_address(formal):
                    self.holds[at, formal] = {PARAMETERS}
                    self._waiting.append((at, formal))

    # ---- one statement

    def _step(self, at: int, statement: _Statement) -> None:
        """What a statement does with the addresses that it names."""
        if not statement.operands:
            return
        points = [self._points(at, names) for _, names in statement.operands]
        if statement.op == "st":
            self._store(at, statement, points)
        elif statement.op in _READ_ONLY:
            self._load(at, statement, points)
        elif statement.op == "call":  # most arguments were stored before it
            if not any(name in self.prints for _, names in statement.operands for name in names):
                self._escape(set().union(*points))
        elif any(address for address, _ in statement.operands):
            self._access(statement, points)
        else:
            reached = set().union(*points[1:])
            if statement.op == "add" and (offset := statement.offset) is not None:
                reached = {f"{one} {offset}" if _BASE.fullmatch(one) else one for one in reached}
            self._assign(at, statement.operands[0][1], reached)

    def _points(self, at: int, names: tuple[str, ...]) -> set[str]:
        found: set[str] = set()
        for name in names:
            found |= {name} if name in self.variables else self.holds.get((at, name), set())
        return found

    def _inside(self, memory: Iterable[str]) -> set[str]:
        """The memory that the addresses stored in `memory` point to."""
        found: set[str] = set()
        for one in memory:
            found |= self.content.get(one, set())
            if base := _BASE.match(one):
                whole = one == base[0]
                for other, held in self.content.items() if whole else ():
                    if isinstance(other, str) and other.startswith(f"{one} "):
                        found |= held
                found |= self.content.get(base[0], set())
        return found

    def _assign(self, at: int, names: tuple[str, ...], points: set[str]) -> None:
        for name in names:
            if not points <= self.holds[at, name] and name not in self.variables:
                self.holds[at, name] |= points
                self._waiting.append((at, name))

    def _load(self, at: int, statement: _Statement, points: list[set[str]]) -> None:
        if statement.op == "ld" and len(points) > 1:
            loaded = self._inside(points[1])
            if "param" in statement.words:
                for name in statement.operands[1][1]:
                    loaded |= self.content.get((at, name), set())
            self._assign(at, statement.operands[0][1], loaded)

    def _store(self, at: int, statement: _Statement, points: list[set[str]]) -> None:
        where, value = points[0], set().union(*points[1:])
        if "param" in statement.words:
            self._pass(at, statement, value)
            return
        self.found |= {one for one in where if not _BASE.match(one)}
        if not value:
            return
        if "local" in statement.words and not self._local_followed:
            self._follow_local()  # this statement comes up again then
        elif where and all(_BASE.match(one) for one in where):
            for one in where:
                self._keep(one, value)
        elif "local" not in statement.words or self._local_followed:
            self._escape(value)

    def _follow_local(self) -> None:
        """Begins to follow addresses of local memory, too: an address was stored there."""
        self._local_followed = True
        for at, function in enumerate(self.functions):
            for depot in _DEPOT.findall(self.text, function.begin, function.end):
                self.holds[at, depot] |= {f"local memory of {function.name}"}
                self._waiting.append((at, depot))
        self._waiting.extend(value for value, points in self.holds.items() if points)
        for name in self.variables:
            self._look_at(name)

    def _keep(self, memory: str, value: set[str]) -> None:
        if not value <= self.content[memory]:
            self.content[memory] |= value
            base = _BASE.match(memory)
            assert base is not None
            near = base[0]
            reaching = (at for at, found in self.holds.items() if any(p.startswith(near) for p in found))
            self._waiting += list(reaching)

    def _pass(self, at: int, statement: _Statement, value: set[str]) -> None:
        """Hands `value`, the memory that an argument may point to, to the function that is called next; where
        no call takes it, it is a result and escapes."""
        if not value:
            return
        name = statement.operands[0][1][0]
        call = _CALL.search(self.text, statement.end, self.functions[at].end)
        callee = _CALLEE.search(call[0]) if call else None
        arguments = _NAME.findall(callee[2]) if callee else []
        if callee is None or name not in arguments:
            self._escape(value)
        elif callee[1] not in self.prints:
            self._enter(callee[1], arguments.index(name), value)

    def _enter(self, callee: str, number: int, value: set[str]) -> None:
        """Gives `value` to argument `number` of the function `callee`; where `callee` is a register, of each
        function whose address a register may hold."""
        known = [(at, f) for at, f in enumerate(self.functions) if not f.entry and number < len(f.formals)]
        if callee.startswith("%"):
            called = [(at, f) for at, f in known if f.wide[number] and self._pointed_to(f.name)]
        else:
            called = [(at, f) for at, f in known if f.name == callee]
        if not called:
            self._escape(value)
        for at, function in called:
            formal = (at, function.formals[number])
            if not value <= self.content[formal]:
                self.content[formal] |= value
                self.holds[formal] |= value
                self._waiting.append(formal)

    def _pointed_to(self, function: str) -> bool:
        """Whether a register may hold the address of a function."""
        naming = (one for other in self.functions for one in other.naming(function))
        return function in self._initial_names or any(one.op != "call" for one in naming)

    def _access(self, statement: _Statement, points: list[set[str]]) -> None:
        """Asynchronous copies read one of their addresses; all else is taken to write what it has."""
        reads: set[int] = set()
        if statement.op == "cp":
            maps = {n for n, yes in enumerate(statement.coordinates) if yes}
            reads = maps if "tensor" in statement.words else {0 if "prefetch" in statement.words else 1}
        if statement.op == "fence":
            reads = {0}
        for number, ((address, _), memory) in enumerate(zip(statement.operands, points, strict=True)):
            if not address:
                if statement.op in ("atom", "red", "multimem") and number:
                    self._escape(memory)
            elif number in reads:
                self._escape(self._inside(memory))
            else:
                self.found |= {one for one in memory if not _BASE.match(one)}

    def _escape(self, memory: set[str]) -> None:
        """Counts `memory`, and what can be reached from it, as written: code that is not followed has it."""
        reached = set(memory)
        while more := self._inside(reached) - reached:
            reached |= more
        self.found |= {one for one in reached if not _BASE.match(one)}
        if any(_BASE.match(one) for one in memory) and not self._local_followed:
            self._follow_local()


def _begins_statement(text: str, at: int) -> bool:
    """Whether a statement or a line begins at `at`, or but for qualifiers."""
    while True:
        before = text[:at].rstrip()
        if not before or before[-1] in ";{}" or "\n" in text[len(before) : at]:
            return True
        qualifier = next((one for one in _QUALIFIERS if before.endswith(one)), None)
        if qualifier is None:
            return False
        at = len(before) - len(qualifier)


def _functions(text: str) -> Iterator[_Function]:
    heads = list(_HEADER.finditer(text))
    for number, head in enumerate(heads):
        if head[4] == "{":
            end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
            end = text.rfind("}", head.end(), end) + 1
            formals = [one for one in (head[3] or "").split(",") if one.strip()]
            names = tuple(re.sub(r"\[.*", "", one).split()[-1] for one in formals)
            wide = tuple("64" in one.split()[1] or "[" in one for one in formals)
            yield _Function(head[2], head[1] == "entry", names, wide, head.end() - 1, end, text)


def _parsed(text: str, end: int) -> _Statement | None:
    """The statement of a text without its semicolon; None for a declaration."""
    text = text[_LEADING.match(text).end() :]  # type: ignore[union-attr]
    text = _GUARD.sub("", text, count=1) if text.startswith("@") else text
    opcode = _OPCODE.match(text)
    if opcode is None:
        return None
    operands = list(_split(opcode[2]))
    return _Statement(
        tuple(re.split(r"\s*(?:\.|::)\s*", opcode[1])),
        tuple(("[" in operand, tuple(_NAME.findall(operand))) for operand in operands),
        tuple("{" in operand for operand in operands),
        end,
        opcode[2],
    )


def _split(text: str) -> Iterator[str]:
    """Operands: what commas outside of all brackets separate."""
    depth, begin = 0, 0
    for at, character in enumerate(text):
        depth += (character in "[{(") - (character in "]})")
        if character == "," and not depth:
            yield text[begin:at].strip()
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def _places(text: str, name: str, begin: int, end: int) -> Iterator[int]:
    """Where `name`, as a whole word, is. A plain search: an expression takes twenty times as long."""
    at = text.find(name, begin, end)
    while at >= 0:
        after = at + len(name)
        if not (_in_word(text[at - 1]) or _in_word(text[after : after + 1])):
            yield at
        at = text.find(name, after, end)


def _in_word(character: str) -> bool:
    return character.isalnum() or character in ("_", "$", "%")
