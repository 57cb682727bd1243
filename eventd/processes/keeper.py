"""Kills plugin programs with all descendants: one keeper for each node process, below it a guard for each program.

Run as a file in its own process, with the standard library alone. The guard and the keeper are subreapers: a descendant
that loses its parent becomes their child, so none escapes that this user may kill. A guard ends its program when the
node asks for it, or when its socket to the node is closed, which the kernel does however the node ends. The keeper ends
what a killed guard leaves behind, and every guard when the node ends.

The sockets are of the type SOCK_SEQPACKET. The node sends the keeper a guard's number, with the guard's end of a socket
to start it, or alone to kill it. It sends a guard RUN, with a file that contains the marshalled (argv, environment) and
the three pipes of the program; and END. The guard answers with `EVENT`s.
"""

from __future__ import annotations

import array
import errno
import marshal
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn

EVENT: Final = struct.Struct("=ci")
"""The format of an event message: the kind of the event and a number."""
STARTED: Final = b"s"
"""The program runs (0), or could not be started: the number is the `errno`."""
EXITED: Final = b"x"
"""The program exited with this status, negative for a signal; its descendants may still run."""
EXITED_ALONE: Final = b"a"
"""The program exited, and no descendant is left."""
CLEAR: Final = b"c"
"""The answer to END: 0 if nothing is left, 1 if a process is left that this user may not kill."""
UNSUPPORTED: Final = b"u"
"""This system has no subreapers."""
RUN: Final = b"r"
END: Final = b"e"
NUMBER: Final = struct.Struct("=q")

_SET_CHILD_SUBREAPER: Final = 36
LIST: Final = "/proc/self/task/{}/children"
KILL: Final = 9
_FDS: Final = 4


class _Reaper:
    """A process that inherits the orphans among its descendants. `wait` for news, then `reap`."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        control.setblocking(False)
        self._news, self._wake = os.pipe()
        os.set_blocking(self._news, False)
        os.set_blocking(self._wake, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Not ignored, because programs would inherit that. It ends with the node, not with a terminal.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self.supported = _adopt_orphans()

    def wait(self) -> None:
        """Return when a child has ended, the node sent a message, or the node is gone; a signal may end it early."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self._news, select.POLLIN)
        poll.poll()
        with suppress(BlockingIOError):
            os.read(self._news, 4096)

    def receive(self) -> tuple[bytes, list[int]] | None:
        """Return the next message of the node with its descriptors; None without one.

        Raises EOFError when the node is gone.
        """
        try:
            data, found, _, _ = self.control.recvmsg(64, socket.CMSG_SPACE(_FDS * 4), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return None
        except OSError:
            raise EOFError from None
        if not data:
            raise EOFError
        fds = array.array("i")
        for _, _, content in found:
            fds.frombytes(content)
        return data, list(fds)

    def reap(self) -> Iterator[tuple[int, int]]:
        """Reap the children that have ended, and yield the pid and exit code of each, negative for a signal."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def any_left(self) -> bool:
        """Return whether there are children, including ended ones."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def close(self) -> None:
        """Close this reaper's descriptors, in a fork that becomes another reaper."""
        signal.set_wakeup_fd(-1)
        for fd in (self._news, self._wake):
            os.close(fd)
        self.control.close()


def _adopt_orphans() -> bool:
    """Become the parent of orphaned descendants; False if unsupported. Children do not inherit this."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, AttributeError, OSError):
        return False


def children() -> list[int]:
    """Return the pids of the children of this process."""
    own = os.getpid()
    try:
        with open(LIST.format(own), encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # a kernel without this file
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == own]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def kill(pid: int) -> bool:
    """Kill a child, and its process group unless that is this process's own. False if this user may not."""
    try:
        group = os.getpgid(pid)
        if group != os.getpgid(0):
            os.killpg(group, KILL)  # at once, so that no member can start another
        os.kill(pid, KILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def kill_children() -> bool:
    """Kill all children, and wait until one has ended; there must be one. False if this user may kill none of them.

    The children of a killed one become children of this process: call this again.
    """
    found = children()
    if found and not any([kill(pid) for pid in found]):
        return False
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    return True


class Guard(_Reaper):
    """Runs one program after the other, and ends each with all its descendants."""

    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._program = 0

    def serve(self) -> NoReturn:
        """Serve until the node closes its end of the socket; then kill the program and its descendants, and exit."""
        try:
            while True:
                self.wait()
                self._note()
                while (message := self.receive()) is not None:
                    if message[0] == RUN:
                        self._run(*message[1])
                    else:
                        self._report(CLEAR, 0 if self._clear() else 1)
        except EOFError:
            self._clear()
        os._exit(0)

    def _run(self, file: int, *pipes: int) -> None:
        with open(file, "rb") as stream:
            argv, environment = marshal.load(stream)
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(pipes)]
        error = 0
        try:
            self._program = os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=actions,
                setsid=True,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores it; programs must not inherit that
            )
        except NotImplementedError:  # a C library that cannot start a session
            self._report(UNSUPPORTED, 0)
            return
        except ValueError:
            error = errno.EINVAL
        except OSError as refused:
            error = refused.errno or errno.EIO
        finally:
            for fd in pipes:
                os.close(fd)
        self._report(STARTED, error)

    def _note(self) -> bool:
        """Reap, and report the program's exit if it has ended. Returns whether this guard still has children."""
        statuses = [status for pid, status in self.reap() if pid == self._program]
        left = self.any_left()
        if statuses:
            self._program = 0
            self._report(EXITED if left else EXITED_ALONE, statuses[0])
        return left

    def _clear(self) -> bool:
        """Kill and reap until no child is left. False if one is left that this user may not kill."""
        while self._note():
            if not kill_children():
                return False
        return True

    def _report(self, kind: bytes, number: int) -> None:
        with suppress(OSError):  # the node is gone, which the next receive reports
            self.control.send(EVENT.pack(kind, number))


class Keeper(_Reaper):
    """Starts guards, and ends what a killed guard leaves behind."""

    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._guards: dict[int, int] = {}

    def serve(self) -> NoReturn:
        """Serve until the node is gone; then kill all processes below this one, and exit."""
        try:
            while True:
                self.wait()
                self._sweep()
                while (message := self.receive()) is not None:
                    (number,) = NUMBER.unpack(message[0])
                    if message[1]:
                        self._start(number, socket.socket(fileno=message[1][0]))
                    elif number in self._guards:
                        kill(self._guards[number])
        except EOFError:
            while self.any_left() and kill_children():
                list(self.reap())
        os._exit(0)

    def _start(self, number: int, control: socket.socket) -> None:
        if not self.supported:
            _refuse(control, UNSUPPORTED, 0)
            return
        try:
            pid = os.fork()
        except OSError as refused:
            _refuse(control, STARTED, refused.errno or errno.EAGAIN)
            return
        if pid == 0:
            os.setpgid(0, 0)  # otherwise it would be killed with the keeper
            self.close()
            Guard(control).serve()
        control.close()
        self._guards[number] = pid

    def _sweep(self) -> None:
        """Reap. If a child had ended, kill the children that are not guards: they were left by a guard that is gone."""
        gone = {pid for pid, _ in self.reap()}
        if gone:
            self._guards = {number: pid for number, pid in self._guards.items() if pid not in gone}
            for pid in sorted(set(children()) - set(self._guards.values())):
                kill(pid)


def _refuse(control: socket.socket, event: bytes, number: int) -> None:
    """Report why a guard was not started. A node that has closed its end meanwhile must not end the keeper."""
    with suppress(OSError):
        control.send(EVENT.pack(event, number))
    control.close()


if __name__ == "__main__":
    Keeper(socket.socket(fileno=int(sys.argv[1]))).serve()
