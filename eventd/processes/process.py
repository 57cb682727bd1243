"""Programs in their own sessions, with three pipes.

The loop itself reads and writes the pipes: a node runs many plugins, and a thread for each would cost too much.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from eventd.runtime.clock import Clock

CHUNK: Final = 64 * 1024
_KILL: Final = 9
"""SIGKILL on every system: a program cannot ignore it."""
_FIND_MODULES: Final = f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r})\n"
_LOOK_AGAIN_SECONDS: Final = 0.01
_REAP_SECONDS: Final = 5.0
"""Maximum seconds that `wait_gone` waits."""


class OutputPipe:
    """Reads an output pipe of a program, chunk by chunk. `ended` is done once either end of the pipe is closed."""

    def __init__(self, fd: int, take: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._take = take
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        """Pass on what can be read, up to one chunk. False if there is nothing now, or the pipe is closed."""
        try:
            chunk = os.read(self._fd, CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return False
        self._take(chunk)
        return self._fd >= 0

    def drain(self, most: int) -> None:
        """Pass on what is already written, up to `most` bytes or one chunk: an endless writer must not block."""
        for _ in range(max(1, most // CHUNK)):
            if self._fd < 0 or not self._read():
                return

    def close(self) -> None:
        """Stop reading, and close this end of the pipe. May be called again."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self.ended.set_result(None)


class InputPipe:
    """The input pipe of a program. A program that does not read, or has ended, is no error."""

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._left = memoryview(b"")
        self._last = False
        os.set_blocking(fd, False)

    def write(self, data: bytes, *, last: bool) -> None:
        """Start to write `data`, as fast as the program reads it, without waiting; `last` closes the pipe at the end.

        Earlier data must have been read: what is left of it is dropped.
        """
        if self._fd < 0:
            return
        self._left, self._last = memoryview(data), last
        self._write()
        if self._left and self._fd >= 0:
            self._loop.add_writer(self._fd, self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left[:CHUNK]) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the program closed its input or ended: only its output matters
            self.close()
            return
        if not self._left:
            self._loop.remove_writer(self._fd)
            if self._last:
                self.close()

    def close(self) -> None:
        """Close this end of the pipe; data that is not yet written is dropped. May be called again."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._left = memoryview(b"")


class Program(ABC):
    """A running program and its three pipes. Always call `kill_and_reap`.

    `exited` has the exit code once the program itself has ended, negative for a signal; its descendants may still run.
    `gone` is done when nothing is left that this process can end.
    """

    def __init__(self, pipes: Sequence[int], clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.stdin = InputPipe(pipes[0])
        self._out, self._err = pipes[1], pipes[2]
        self._inflows: list[OutputPipe] = []

    def read_stdout(self, take: Callable[[bytes], None]) -> OutputPipe:
        """Pass what the program writes to standard output to `take`, chunk by chunk; returns the pipe. Call once."""
        return self._inflow(self._out, take)

    def read_stderr(self, take: Callable[[bytes], None]) -> OutputPipe:
        """Like `read_stdout`, for standard error."""
        return self._inflow(self._err, take)

    def _inflow(self, fd: int, take: Callable[[bytes], None]) -> OutputPipe:
        self._inflows.append(OutputPipe(fd, take))
        return self._inflows[-1]

    @abstractmethod
    def kill(self) -> None:
        """Kill the program and its descendants, as far as they can be reached; does not wait for their end."""

    def kill_and_reap(self) -> None:
        """Kill the processes that still run, close the pipes, and reap the program now or as soon as possible.

        May be called again.
        """
        self.kill()
        self.stdin.close()
        for inflow in self._inflows:
            inflow.close()

    async def wait_gone(self) -> None:
        """Wait for `gone`, but only for `_REAP_SECONDS`: the kernel may hold a process that waits for a dead disk."""
        timer = self._clock.timer(_REAP_SECONDS)
        try:
            await asyncio.wait({self.gone, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()


class Process(Program):
    """A program that is a child of this process. Create it with `start`.

    It is killed with its process group, so a descendant that leaves the group escapes. Until the program is reaped, no
    other process or group can get its pid, so that no other is hit.
    """

    def __init__(self, popen: subprocess.Popen[bytes], pipes: Sequence[int], clock: Clock) -> None:
        super().__init__(pipes, clock)
        self._popen = popen
        self._ending = False
        self._closed = False
        self._watch()

    @classmethod
    def start(
        cls, argv: Sequence[str], environment: Mapping[str, str], clock: Clock, *, inherited: Sequence[int] = ()
    ) -> Process:
        """Start a program in its own session, with its pipes and the `inherited` descriptors only. Raises OSError."""
        with open_pipes() as (ours, theirs):
            popen = subprocess.Popen(
                argv,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                cwd="/",
                env=dict(environment),
                close_fds=True,
                pass_fds=inherited,
                start_new_session=True,
            )
            return cls(popen, [ours.pop(0) for _ in range(3)], clock)

    @classmethod
    def start_python(
        cls,
        code: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        clock: Clock,
        path: Sequence[str] = (),
        *,
        inherited: Sequence[int] = (),
    ) -> Process:
        """Start Python code that finds modules in `path` and where this process does. Raises OSError.

        PYTHONPATH is not used, because programs that it starts would see it. `sys.argv` has the `arguments`, and last
        the number of a pipe for `lifeline.end_with`, so that the code ends with this process, even if that is killed.
        The `inherited` descriptors keep their numbers.
        """
        theirs, ours = os.pipe()
        try:
            argv = python_argv(code, (*arguments, str(theirs)), path)
            process = cls.start(argv, environment, clock, inherited=(theirs, *inherited))
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        process.gone.add_done_callback(lambda _: os.close(ours))
        return process

    @property
    def pid(self) -> int:
        return self._popen.pid

    def send_signal(self, number: int) -> None:
        """Send a signal to the program itself."""
        if not self._closed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._popen.pid, number)

    def kill(self) -> None:
        """Kill the program and all descendants that stayed in its process group."""
        if not self._closed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, _KILL)

    def kill_and_reap(self) -> None:
        self._ending = True
        super().kill_and_reap()
        if self.exited.done():
            self._reap()

    # --- noticing the end ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):  # a system without pidfds: poll
            self._pidfd = -1
            self._look()
        else:
            self._loop.add_reader(self._pidfd, self._look)

    def _look(self) -> None:
        """Set `exited` once the program has ended; it is reaped only after `kill_and_reap`: its pid stays reserved."""
        found = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            if self._pidfd < 0:
                self._clock.timer(_LOOK_AGAIN_SECONDS).add_done_callback(lambda _: self._look())
            return
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self.exited.set_result(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
        if self._ending:
            self._reap()

    def _reap(self) -> None:
        if not self._closed:
            self.kill()
            self._closed = True
            self._popen.wait()
            self.gone.set_result(None)


def python_argv(code: str, arguments: Sequence[str], path: Sequence[str] = ()) -> list[str]:
    """Return the command line of Python code that finds modules in `path`, and where this process does."""
    places = os.pathsep.join(filter(None, (*path, *sys.path)))
    return [sys.executable, "-P", "-X", "utf8", "-c", _FIND_MODULES + code, *arguments, places]


@contextlib.contextmanager
def open_pipes() -> Iterator[tuple[list[int], list[int]]]:
    """Yield this side's and the program's ends of three pipes: standard input, output and error.

    Closed afterwards, except those of this side that were taken out.
    """
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for incoming in (False, True, True):
            read, write = os.pipe()
            ours.append(read if incoming else write)
            theirs.append(write if incoming else read)
        yield ours, theirs
    finally:
        for fd in (*ours, *theirs):
            os.close(fd)
