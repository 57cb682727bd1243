"""The node's side of the shipping process, which is started on demand and ended when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventd.egress.lake.protocol import ANSWERS, LENGTH, Answer, Request, Terms, frame
from eventd.errors import Unavailable
from eventd.processes.process import Process
from eventd.runtime.clock import Clock

STEP_SECONDS: Final = 600.0
"""Seconds that one step may take: the process has the lowest priority and stores may be slow."""
_KEPT: Final = 8000
"""Number of bytes that are kept of the end of the process's standard error."""
_MAIN: Final = """\
from eventd.egress.lake.worker import main
main(int(sys.argv[1]))
"""

logger = logging.getLogger("eventd.lake")


class WorkerLost(Unavailable):
    """The shipping process could not be started, ended, or gave no valid answer in time."""


class WorkerClient:
    """Talks to at most one shipping process: `ask` starts it when there is none, `close` ends it."""

    def __init__(self, terms: Terms, environment: Mapping[str, str], clock: Clock) -> None:
        self._terms = terms
        self._environment = environment
        self._clock = clock
        self._child: _Process | None = None
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Return the id of the process; None without one."""
        return None if self._child is None else self._child.process.pid

    async def ask(self, request: Request) -> Answer:
        """Let the process perform one request, and return its answer; start the process if there is none.

        Raises WorkerLost; the next call then starts another process.
        """
        try:
            if self._child is None:
                self._child = _Process(self._terms, self._environment, self._clock)
                self.starts += 1
            return await self._child.ask(request)
        except OSError as error:
            raise WorkerLost(f"no shipping process could be started: {error.strerror or error}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Kill the process, even during a step: the next process continues from the files that this one has
        written."""
        child, self._child = self._child, None
        if child is not None:
            child.process.kill_and_reap()
            await child.process.wait_gone()


class _Process:
    def __init__(self, terms: Terms, environment: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self.process = Process.start_python(_MAIN, (), environment, clock)
        self._out = bytearray()
        self._err = bytearray()
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.process.read_stdout(self._take)
        self._stderr = self.process.read_stderr(self._note)
        self._waiting = frame(terms)  # sent with the first request: only one write is under way at a time

    def _take(self, chunk: bytes) -> None:
        self._out += chunk
        if len(self._out) < LENGTH or len(self._out) < LENGTH + int.from_bytes(self._out[:LENGTH]):
            return
        body = bytes(self._out[LENGTH:])
        self._out.clear()
        if not self._answer.done():
            try:
                self._answer.set_result(ANSWERS.decode(body))
            except msgspec.MsgspecError as error:
                self._answer.set_exception(WorkerLost(f"the shipping process sent an invalid message: {error}"))

    def _note(self, chunk: bytes) -> None:
        self._err = (self._err + chunk)[-_KEPT:]

    async def ask(self, request: Request) -> Answer:
        self._answer = asyncio.get_running_loop().create_future()
        data, self._waiting = self._waiting + frame(request), b""
        self.process.stdin.write(data, last=False)
        timer = self._clock.timer(STEP_SECONDS)
        try:
            waits: set[asyncio.Future[Any]] = {self._answer, self.process.exited, timer}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        self._log_errors()
        if self._answer.done():
            return self._answer.result()
        if self.process.exited.done():
            code = self.process.exited.result()
            how = f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
            raise WorkerLost(f"the shipping process {how}")
        raise WorkerLost(f"the shipping process has not answered for {STEP_SECONDS:g} s")

    def _log_errors(self) -> None:
        """Log the text that the process wrote to standard error since the last call."""
        self._stderr.drain(_KEPT)
        if text := self._err.decode(errors="replace").strip():
            logger.error("shipping process output", extra={"text": text})
            self._err.clear()
