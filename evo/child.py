"""One supervised child process: it answers questions, and may hang, die, leak or print without end.

    parent                                      child
    Child(program, spec)   ───── starts ─────>  made = program(spec, report)
    ask(method, *args)     ──── question ────>  made.method(*args)
                           <──── reports ─────      report(...), as often as it likes
                           <──── answer ──────  what it returned, or what it raised

A death is `Crashed`, with the end of what the process wrote. No answer before the deadline is `Hung`. With
several children, or several questions for one, a caller uses `send` and `receive`, and waits for `fileno`.
The child ends when its parent does. Ctrl-C is the parent's to handle. A child leaves no core file, and none
of its files is larger than `file_bytes`, its log included.

A `Command` is the other kind of process: any program, which runs to its end or to a deadline.

This module imports little, so that a child starts fast: the process that compiles begins with no more
than this, and what only a parent needs, or only an error, is imported there.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from evo.errors import Crashed, EvoError, Hung

if TYPE_CHECKING:
    from pathlib import Path

Report = Callable[[object], None]
"""Tells the parent something before the answer: any picklable value."""
START_LIMIT_S = 300.0
"""How long a child may take to start. What it imports and captures counts for none of its questions."""
FILE_LIMIT = 256 << 20
"""Bytes of the largest file that a child can write: a kernel may print without end."""
LAST_WORDS_BYTES = 2000
"""How much of the log's end a Crashed has."""
PARENT_S = 1.0
"""How often a child looks whether its parent still lives."""
EVALUATES = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""For children that evaluate: one a core, and torch need not look in every distribution for other devices."""
_START = """import sys
sys.path[:] = dict.fromkeys(sys.argv[5:] + sys.path)
from evo.child import serve
serve(*map(int, sys.argv[1:4]), sys.argv[4])"""


class ChildError(Exception):
    """The program raised what is no EvoError: a bug. The text is the child's traceback."""


class Answer(NamedTuple):
    """A question's answer. `last`: the program is used up, and the process ends after this answer."""

    value: Any
    last: bool


class Said(NamedTuple):
    """What the program reported before its answer."""

    what: Any


class Spare:
    """A process that is to become a `Child`: it prepares itself before it is known what it will do.

    `first`: a module and a word for its function `prepare`, which is called before all else. `alone`: the
    process has the standard library and `evo` only, and starts in half the time."""

    def __init__(
        self,
        first: tuple[str, str] | None = None,
        *,
        alone: bool = False,
        file_bytes: int = FILE_LIMIT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        from pathlib import Path

        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as its child
        self.connection, theirs = Pipe()
        path = [str(Path(__file__).parents[1])] if alone else sys.path
        words = [str(theirs.fileno()), str(os.getpid()), str(file_bytes), " ".join(first or ()), *path]
        # what is blocked stays so across exec: a Ctrl-C cannot end the child before it ignores it
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-P", *["-I", "-S"] * alone, "-c", _START, *words],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()

    def close(self) -> None:
        """Ends it, where no child came of it."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.log.close()


class Child:
    """A process that makes `program(spec, report)` and answers questions by the methods of what it made.

    `program` and `spec` are pickled, and so are arguments and answers. A program that has an attribute
    `usable` ends after the answer by which that is false. One that has a method `meanwhile` is asked, while
    no question is there, to do a piece of work of its own, and says whether there is more. Where `program` is
    a path, the function or class `program` of that file is taken, and the process has the standard library
    and `evo` alone: it starts in half the time. `env`: variables besides those of this process. `spare`: the
    process that becomes this child, instead of a new one.
    """

    def __init__(
        self,
        program: Callable[[Any, Report], Any] | Path,
        spec: object,
        *,
        start_s: float = START_LIMIT_S,
        file_bytes: int = FILE_LIMIT,
        env: Mapping[str, str] | None = None,
        spare: Spare | None = None,
    ) -> None:
        from pathlib import Path

        alone = isinstance(program, Path)
        packed = pickle.dumps((str(program) if alone else program, spec))
        self.started = time.monotonic()
        self.start_s = start_s
        self.ready = False
        """Whether the program is made; known when `receive` or `ask` heard of it."""
        self._ended = False
        self._telling: threading.Thread | None = None
        self._unheard = 0
        """Answers on their way to questions of `tell`."""
        spare = spare or Spare(alone=alone, file_bytes=file_bytes, env=env)
        self._process, self._connection, self._log = spare.process, spare.connection, spare.log
        with contextlib.suppress(OSError):  # it died already: `death` will tell
            self._connection.send_bytes(packed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """As Popen has it: None while it lives, the exit code, or less than zero: minus a signal's number."""
        return self._process.poll()

    @property
    def dead(self) -> bool:
        """Whether it will answer no more."""
        return self._ended or self._process.poll() is not None

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`: readable when `receive` has news, or the process died."""
        return self._connection.fileno()

    def send(self, method: str, *args: object) -> None:
        """Asks without waiting for the answer. Questions are answered one after the other, in this order."""
        self._send_after(self._telling, method, args)

    def tell(self, method: str, *args: object) -> None:
        """Asks without waiting, not even until it is read; the next `ask` passes over the answer."""
        words = (self._telling, method, args)
        self._telling = threading.Thread(target=self._send_after, args=words, daemon=True)
        self._telling.start()
        self._unheard += 1

    def _send_after(self, before: threading.Thread | None, method: str, args: tuple[object, ...]) -> None:
        if before is not None:
            before.join()
        with contextlib.suppress(OSError):  # as above
            self._connection.send((method, args))

    def receive(self) -> Iterator[Answer | Said]:
        """What has arrived. Raises what the program raised: an EvoError as it is, else ChildError."""
        while not self._ended:
            try:
                if not self._connection.poll():
                    return
                kind, what = self._connection.recv()
            except (EOFError, OSError):
                self._ended = True
                return
            if kind == "error":
                raise what if isinstance(what, EvoError) else ChildError(what)
            if kind == "ready":
                self.ready = True
            else:
                yield Said(what) if kind == "said" else Answer(what, kind == "last")

    def ask(self, method: str, *args: object, deadline: float) -> Any:
        """The answer. Raises what the method raised; Hung after `deadline` seconds, which begin when the
        process is ready; Crashed where it died. After these two the process is gone."""
        self.send(method, *args)
        asked = time.monotonic() if self.ready else None
        while True:
            dead = self.dead  # asked first: its answer may be on the way when it dies
            for message in self.receive():
                if isinstance(message, Answer) and not self._unheard:
                    return message.value
                self._unheard -= isinstance(message, Answer)
            if dead:
                error = self.death()
                self.close()
                raise error
            if asked is None and self.ready:
                asked = time.monotonic()
            end = self.started + self.start_s if asked is None else asked + deadline
            if end <= time.monotonic():
                self.close()
                raise self.late(deadline)
            wait_for([self.fileno()], max(0.0, end - time.monotonic()))

    def late(self, deadline: float, where: str = "") -> Hung:
        """What to say of it after `deadline` seconds, or those that it had to start."""
        if not self.ready:
            deadline, where = self.start_s, "while starting"
        return Hung("deadline", ", ".join(filter(None, [f"no answer within {deadline:g} s", where])))

    def death(self) -> Crashed:
        """Why it died, and its last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)  # it closed the connection: its end is near
        self.kill()
        status = self._process.wait()
        reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        return Crashed(reason, self.last_words())

    def last_words(self) -> str:
        """The end of what it wrote since its last question."""
        if self._log.closed:
            return ""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
        return self._log.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """Ends it, from any thread: where another one asks, it gets Crashed. Its own children end with it."""
        self._process.kill()

    def close(self) -> None:
        """Ends it for good; may be called again."""
        self._ended = True
        self.kill()
        self._process.wait()
        if self._telling is not None:
            self._telling.join()  # what is not read any more is an error there
        self._connection.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Command:
    """A program at work, with all processes that it starts. `cwd`: where; `env`: variables besides those of
    this process."""

    def __init__(
        self, words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def wait(self, timeout_s: float) -> tuple[int, str]:
        """Its exit status, and all that it wrote: stdout, then stderr. TimeoutError where it has not ended
        after `timeout_s` seconds; then it and its descendants are gone."""
        with self._process:
            try:
                out, err = self._process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as late:
                raise TimeoutError(f"no answer within {timeout_s:g} s") from late
            finally:
                self.kill()
        return self._process.returncode, out + err

    def kill(self) -> None:
        """Ends it and its descendants, from any thread."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


# --- in the child ------------------------------------------------------------------------------------------


def serve(fd: int, parent: int, file_bytes: int, first: str) -> None:
    """The life of a child: prepare, make the program, then answer over `fd` until the `parent` is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    connection = Connection(fd)
    gc.disable()  # a fifth of what importing torch takes
    with contextlib.suppress(EOFError, OSError):  # the parent closed
        try:
            if first:
                module, word = first.split(" ")
                importlib.import_module(module).prepare(word)
            made = _make(connection)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            connection.send(("error", _told(error)))
        else:
            gc.freeze()  # what libraries brought need not be looked through again, 100 ms each time
            gc.enable()
            connection.send(("ready", None))
            while _spare_time(made, connection) and _answer(made, connection):
                pass
    os._exit(0)  # a dead CUDA context must not hold up the interpreter's end


def _make(connection: Connection) -> Any:
    program, spec = pickle.loads(connection.recv_bytes())
    if isinstance(program, str):
        found = importlib.util.spec_from_file_location("program", program)
        assert found
        assert found.loader
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        program = module.program
    return program(spec, lambda what: connection.send(("said", what)))


def _spare_time(made: Any, connection: Connection) -> bool:
    """Until the next question is there, the program may get on with work of its own, a piece at a time."""
    work = getattr(made, "meanwhile", None)
    try:
        while work is not None and not connection.poll() and work():
            pass
    except Exception as error:  # noqa: BLE001 - the parent raises it
        connection.send(("error", _told(error)))
    return True


def _answer(made: Any, connection: Connection) -> bool:
    """Answers one question; whether it can take another."""
    method, args = connection.recv()
    os.ftruncate(1, 0)  # what was written for earlier questions is of no use any more
    os.lseek(1, 0, os.SEEK_SET)
    try:
        value = getattr(made, method)(*args)
        usable = getattr(made, "usable", True)
        connection.send(("answer" if usable else "last", value))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        connection.send(("error", _told(error)))
        return True
    return bool(usable)


def _told(error: Exception) -> EvoError | str:
    import traceback

    return error if isinstance(error, EvoError) else traceback.format_exc()


def end_with(parent: int) -> None:
    """From now on this process ends soon after its `parent`, a process id, did, even in the middle of a
    compilation. (The parent-death signal of Linux would do, but it comes when the *thread* that started this
    process ends.)"""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
