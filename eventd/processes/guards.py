"""The node's side of the keeper: starts programs that are killed, with all their descendants, when the node ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import marshal
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from eventd.processes import keeper
from eventd.processes.process import Process, Program, open_pipes, python_argv
from eventd.runtime.clock import Clock

START_SECONDS: Final = 10.0
"""Seconds that a guard may take to start a program, a thousand times the usual; a stopped guard never does."""
END_SECONDS: Final = 5.0
"""Seconds that the keeper may take to end everything when the node stops."""
MAX_IDLE: Final = 4
"""Maximum number of idle guards that are kept for reuse."""
NO_LIFELINE: Final = "-1"
"""The argument that tells Python code that a guard kills it, not a lifeline."""

logger = logging.getLogger("eventd.plugins")


class _Unsupported(Exception):
    """This system has no subreapers, or its C library cannot start a session."""


class Guards:
    """Starts programs, each below a guard. The first one starts the keeper. Call `close` at the end.

    Without support for guards (on any system but Linux), a program is a `Process`, a child of this one, killed with its
    process group; then `close` does not end it, and an executable, unlike Python code, survives a killed node.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._supported = hasattr(os, "memfd_create")
        self._keeper: _Keeper | None = None
        self._guards: dict[_Guard, None] = {}
        self._idle: list[_Guard] = []
        self._last = 0

    async def start(self, argv: Sequence[str], environment: Mapping[str, str]) -> Program:
        """Start a program in its own session. Raises OSError. Cancelling ends the program."""
        return await self._start(argv, environment) or Process.start(argv, environment, self._clock)

    async def start_python(
        self, code: str, arguments: Sequence[str], environment: Mapping[str, str], path: Sequence[str]
    ) -> Program:
        """Start Python code like `Process.start_python`; under a guard its last argument is -1. Raises OSError."""
        guarded = await self._start(python_argv(code, (*arguments, NO_LIFELINE), path), environment)
        return guarded or Process.start_python(code, arguments, environment, self._clock, path)

    async def _start(self, argv: Sequence[str], environment: Mapping[str, str]) -> Program | None:
        """Start a program under a guard, and return it; None if this system does not support guards."""
        if not self._supported:
            return None
        with open_pipes() as (ours, theirs):
            try:
                guard = await self._run(argv, environment, theirs)
            except ConnectionResetError:  # a guard or keeper was killed while idle
                guard = await self._run(argv, environment, theirs)
            return None if guard is None else _GuardedProgram(guard, [ours.pop(0) for _ in range(3)], self._clock)

    async def _run(self, argv: Sequence[str], environment: Mapping[str, str], pipes: Sequence[int]) -> _Guard | None:
        guard = self._idle.pop() if self._idle else self._new_guard()
        try:
            await guard.run(argv, environment, pipes)
        except _Unsupported:
            self._supported = False
            guard.close()
            logger.warning("plugin guards unavailable", extra={"reason": "the system does not support subreapers"})
            return None
        except TimeoutError:
            self._distrust(guard)
            raise
        except BaseException:
            guard.close()
            raise
        return guard

    def _new_guard(self) -> _Guard:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._last += 1
        try:
            with theirs:
                guarding = self._hand_over(self._last, theirs)
        except BaseException:
            ours.close()
            raise
        guard = _Guard(self._last, ours, guarding, self._clock, self._release)
        self._guards[guard] = None
        return guard

    def _hand_over(self, number: int, end: socket.socket) -> _Keeper:
        """Let the keeper start a guard, and return the keeper; start a new keeper first if none runs (any more)."""
        if self._keeper is not None:
            try:
                self._keeper.start_guard(number, end)
                return self._keeper
            except (BrokenPipeError, ConnectionResetError):
                self._drop(self._keeper)
        self._keeper = _Keeper(self._clock, self._drop)
        self._keeper.start_guard(number, end)
        return self._keeper

    def _release(self, guard: _Guard, reusable: bool) -> None:
        """Keep a guard whose program is gone for reuse, or close it."""
        if reusable and guard.keeper is self._keeper and len(self._idle) < MAX_IDLE:
            self._idle.append(guard)
        else:
            self._guards.pop(guard, None)
            if guard in self._idle:
                self._idle.remove(guard)
            guard.close()

    def _distrust(self, guard: _Guard) -> None:
        """Let the keeper kill a guard that did not respond; if the guard is new, drop the keeper, which may hang."""
        guard.keeper.kill_guard(guard.number)
        if guard.is_new:
            self._drop(guard.keeper)
        guard.close()

    def _drop(self, dropped: _Keeper) -> None:
        """Kill a keeper, and start no guard with it again: its idle guards end, its others end with their programs."""
        dropped.kill()
        if dropped is self._keeper:
            self._keeper = None
            for guard in self._idle[:]:
                guard.close()

    async def close(self) -> None:
        """Kill every program under a guard, end the guards and the keeper, and wait for the keeper's end."""
        for guard in list(self._guards):
            guard.close()
        if self._keeper is not None:
            closed, self._keeper = self._keeper, None
            await closed.close()


class _Keeper:
    """The node's handle on the process that starts the guards."""

    def __init__(self, clock: Clock, ended: Callable[[_Keeper], None]) -> None:
        self._clock = clock
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            argv = [sys.executable, "-I", "-S", "-X", "utf8", keeper.__file__, str(fd)]
            try:
                self._process = Process.start(argv, {}, clock, inherited=[fd])
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._process.stdin.close()
        self._process.read_stdout(lambda _: None)
        self._process.read_stderr(lambda text: logger.error("plugin keeper output", extra={"text": text.decode()}))
        self._process.exited.add_done_callback(lambda _: ended(self))

    def start_guard(self, number: int, end: socket.socket) -> None:
        """Start a guard; `end` is its end of the socket to the node. Raises OSError."""
        socket.send_fds(self._socket, [keeper.NUMBER.pack(number)], [end.fileno()])

    def kill_guard(self, number: int) -> None:
        """Let the keeper kill a guard that does not respond, and then its programs; does not wait."""
        try:
            self._socket.send(keeper.NUMBER.pack(number))
        except OSError:
            logger.warning("plugin guard hung")

    def kill(self) -> None:
        """Kill the keeper at once. May be called again."""
        self._socket.close()
        self._process.kill_and_reap()

    async def close(self) -> None:
        """Let the keeper end all of its guards and itself, for up to `END_SECONDS`; then kill it and wait."""
        self._socket.close()
        timer = self._clock.timer(END_SECONDS)
        try:
            await _first_of(self._process.exited, timer)
        finally:
            timer.cancel()
        self._process.kill_and_reap()
        await self._process.wait_gone()


class _Guard:
    """The node's end of the socket to a guard, which runs one program at a time: `run`, then `kill_program`."""

    def __init__(
        self,
        number: int,
        control: socket.socket,
        guarding: _Keeper,
        clock: Clock,
        released: Callable[[_Guard, bool], None],
    ) -> None:
        self.number = number
        self.keeper = guarding
        self.is_new = True
        self._clock = clock
        self._released = released
        self._loop = asyncio.get_running_loop()
        self._socket = control
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._hear)
        self._begin()

    def _begin(self) -> None:
        self._started: asyncio.Future[int] = self._loop.create_future()
        # retrieved, if nothing awaits it
        self._started.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._alone = self._ending = False

    async def run(self, argv: Sequence[str], environment: Mapping[str, str], pipes: Sequence[int]) -> None:
        """Start a program on its ends of three pipes; wait until it runs. Raises OSError, and `_Unsupported`."""
        self._begin()
        self._ask(argv, environment, pipes)
        timer = self._clock.timer(START_SECONDS)
        try:
            await _first_of(self._started, timer)
        finally:
            timer.cancel()
        if not self._started.done():
            raise TimeoutError(errno.ETIMEDOUT, f"the guard did not start it within {START_SECONDS:g} s")
        self.is_new = False
        if error := self._started.result():
            raise OSError(error, os.strerror(error))

    def _ask(self, argv: Sequence[str], environment: Mapping[str, str], pipes: Sequence[int]) -> None:
        with open(os.memfd_create("program"), "w+b") as file:  # a file has no size limit, unlike a message
            marshal.dump((list(argv), dict(environment)), file)
            file.seek(0)
            with suppress(BrokenPipeError, ConnectionResetError):  # messages that it sent before are still read
                socket.send_fds(self._socket, [keeper.RUN], [file.fileno(), *pipes])

    def kill_program(self) -> None:
        """Let the guard kill the program and its descendants, then set `gone`; does not wait. May be called again."""
        if self._ending or self.gone.done():
            return
        self._ending = True
        if self._alone:
            self._finish(reusable=True)
            return
        try:
            self._socket.send(keeper.END)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the socket to the guard, which then kills its program and exits; `exited` and `gone` are set at once.

        May be called again.
        """
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if not self._started.done():
            self._started.set_exception(ConnectionResetError(errno.ECONNRESET, "the guard of the program was killed"))
        if not self.exited.done():
            self.exited.set_result(-keeper.KILL)
        self._finish(reusable=False)

    def _finish(self, *, reusable: bool) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._released(self, reusable)

    def _hear(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                data = self._socket.recv(keeper.EVENT.size)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it ended without reading everything; its earlier messages come now
                continue
            if not data:
                self.close()
                return
            self._note(*keeper.EVENT.unpack(data))

    def _note(self, kind: bytes, number: int) -> None:
        if kind == keeper.STARTED:
            self._started.set_result(number)
        elif kind == keeper.UNSUPPORTED:
            self._started.set_exception(_Unsupported())
        elif kind == keeper.CLEAR:
            self._finish(reusable=number == 0)
        else:
            self._alone = kind == keeper.EXITED_ALONE
            self.exited.set_result(number)


class _GuardedProgram(Program):
    """A program below a guard, which kills it together with all its descendants."""

    def __init__(self, guard: _Guard, pipes: Sequence[int], clock: Clock) -> None:
        super().__init__(pipes, clock)
        self._guard = guard
        self.exited, self.gone = guard.exited, guard.gone

    def kill(self) -> None:
        if not self.gone.done():  # otherwise the guard has another program now
            self._guard.kill_program()

    async def wait_gone(self) -> None:
        """Wait like any `Program`; if that takes too long, the keeper kills the guard, and what it leaves behind."""
        await super().wait_gone()
        if not self.gone.done():
            self._guard.keeper.kill_guard(self._guard.number)


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
