"""A node of several processes: the parent starts them, holds what they share, and restarts a process that ended."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from eventd.api.listener.addresses import listen
from eventd.api.listener.local_socket import LocalSocket
from eventd.errors import EventdError
from eventd.processes.process import Process
from eventd.runtime.backoff import Backoff
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND, Clock
from eventd.runtime.stopping import StopState
from eventd.runtime.supervisor import Supervisor
from eventd.runtime.worker_share import Share
from eventd.settings.environment import worker_environment
from eventd.settings.model import Settings
from eventd.store.engine.claim import DatabaseClaim

AGAIN = Backoff(base=0.1, cap=10.0)
STEADY_SECONDS = 60.0
"""Seconds that a worker must run for its next restart to count as the first one."""
BEAT_SECONDS = 5.0
"""Seconds between two messages by which a worker shows that its loop runs."""
SILENT_SECONDS = 20.0
"""Seconds without a message after which a worker is killed as hung. Its first message may take twice as long."""
_MAIN = """\
from eventd.cli.daemon.worker import main
main(int(sys.argv[1]))
"""

logger = logging.getLogger("eventd.workers")


class WorkerConfig(NamedTuple):
    """The configuration of a worker.

    `sockets` and the one of `local` are numbers of inherited descriptors, `origin` is the clock origin (µs) of the
    node: see `SystemClock`.
    """

    settings: Settings
    share: Share
    sockets: tuple[int, ...]
    local: LocalSocket | None
    origin: int


class Workers:
    """The workers of one node. They are killed when this process ends for any reason."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        claim: DatabaseClaim | None = None,
        sockets: Sequence[socket.socket] = (),
        local: LocalSocket | None = None,
    ) -> None:
        self.api_address: tuple[str, int] | None = None
        # Workers write to a pipe, but their log appears on this terminal.
        if settings.log_format == "auto" and sys.stderr.isatty():
            settings = settings.model_copy(update={"log_format": "text"})
        self._settings = settings
        self._clock = clock
        self._origin = clock.steady() - round(clock.monotonic() * SECOND)
        self._claim = claim
        self._sockets = sockets
        self._local = local
        self._folder = ""
        self._workers: list[_Worker] = []
        self._tending: list[asyncio.Task[None]] = []
        self._supervisor: Supervisor | None = None
        self._stopped = asyncio.Event()

    def stop_state(self) -> StopState:
        """Return how many workers a stop under way waits for; each logs what it waits for itself."""
        return StopState("workers", {}, {"workers": len(self._workers)})

    async def start(self) -> None:
        """Start all workers; returns when all are ready. Raises OSError, and `EventdError` if one fails.

        A worker that ends or hangs before it is ready has failed; then all workers are stopped.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._supervisor = Supervisor(self._clock)
        self._sockets = self._sockets or await listen(*self._settings.api_listen, self._clock)
        self.api_address = self._sockets[0].getsockname()[:2]
        if self._local is not None:
            self._local.bind(SYSTEM)
        self._folder = tempfile.mkdtemp(prefix="eventd-workers-")
        self._workers = [_Worker(self._begin, number, self._clock) for number in range(self._settings.workers)]
        for worker in self._workers:
            await worker.ready
        tasks = {f"worker {worker.number}": self._tend(worker) for worker in self._workers}
        if self._claim is not None:
            tasks["claim"] = self._claim.keep(self._clock.sleep)
        if self._local is not None and not self._local.publish():
            self._supervisor.keep(partial(self._local.keep_publishing, self._clock.sleep), "local socket")
        # Without any of these the node is incomplete: it ends, and its service manager starts it again.
        self._tending = [self._supervisor.guard(task, name) for name, task in tasks.items()]

    def _begin(self, number: int, resumed: bool) -> Process:
        claim = self._claim.name if self._claim else ""
        share = Share(number, self._settings.workers, resumed, self._folder, claim)
        sockets = tuple(each.fileno() for each in self._sockets)
        terms = pickle.dumps(WorkerConfig(self._settings, share, sockets, self._local, self._origin))
        if self._local is not None and self._local.descriptor >= 0:
            sockets += (self._local.descriptor,)
        process = Process.start_python(_MAIN, (), worker_environment(), self._clock, inherited=sockets)
        process.stdin.write(terms, last=True)
        return process

    async def _tend(self, worker: _Worker) -> None:
        """Restart a worker, after a back-off, whenever its process has ended. The others continue meanwhile."""
        failures = 0
        while True:
            begun = self._clock.monotonic()
            code = await asyncio.shield(worker.process.exited)
            failures = 1 if self._clock.monotonic() - begun > STEADY_SECONDS else failures + 1
            about = {"worker": worker.number} | ({"signal": -code} if code < 0 else {"status": code})
            logger.warning("worker restarting", extra=about | ({"reason": worker.trouble} if worker.trouble else {}))
            await worker.close()
            await self._clock.sleep(AGAIN.delay(failures, SYSTEM.fraction()))
            worker.begin(resumed=True)

    async def run_until_stopped(self) -> None:
        """Run until `stop` is called. Raises if another node takes the claim, or a worker cannot be restarted."""
        assert self._supervisor is not None
        stopped = self._supervisor.spawn(self._stopped.wait(), "stopped")  # awaited here
        waits: set[asyncio.Future[Any]] = {stopped, self._supervisor.failed}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._supervisor.failed.done():
            self._supervisor.failed.result()

    async def reload(self) -> None:
        """Tell each worker to read its keys and secrets again; does not wait until it has."""
        for worker in self._workers:
            worker.process.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        """Have the workers finish, then close the API's sockets and delete the shared folder. May be called again."""
        self._stopped.set()
        if self._local is not None:
            self._local.close()  # a command that starts now finds no socket, and opens the database
        for task in self._tending:
            task.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in [*self._workers]:
            await asyncio.shield(worker.process.exited)
            await worker.close()
            self._workers.remove(worker)
        if self._supervisor is not None:
            await self._supervisor.stop()
        for each in self._sockets:
            each.close()
        self._sockets = ()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Worker:
    """One of the workers, with its present process. A process that hangs is killed."""

    def __init__(self, start: Callable[[int, bool], Process], number: int, clock: Clock) -> None:
        self.number = number
        self._start = start
        self._clock = clock
        self.begin(resumed=False)

    def begin(self, *, resumed: bool) -> None:
        """Start the worker's process, or its next one. Raises OSError."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # retrieves an error that nothing awaits
        self.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self._received = bytearray()
        self._said = bytearray()
        self._hung = False
        self.process = self._start(self.number, resumed)
        self.process.read_stdout(self._hear)
        self._errors = self.process.read_stderr(self._relay)
        self.process.exited.add_done_callback(self._ended)
        self._await_word(heard=True)  # counts as a first message: loading may take long

    def _await_word(self, *, heard: bool = False) -> None:
        self._heard = heard
        self._silence = self._clock.timer(SILENT_SECONDS)
        self._silence.add_done_callback(lambda timer: None if timer.cancelled() else self._check())

    def _check(self) -> None:
        """Kill the process if it has sent nothing since the last check; otherwise schedule the next."""
        if self._heard:
            self._await_word()
            return
        logger.error("worker hung", extra={"worker": self.number})
        self._hung = True
        self.process.kill()

    def _hear(self, chunk: bytes) -> None:
        """Read messages of the worker: that its event loop runs, that it is ready, or why it cannot start."""
        self._received += chunk
        self._heard = True
        while b"\n" in self._received:
            line, _, rest = self._received.partition(b"\n")
            self._received = bytearray(rest)
            message = json.loads(line)
            if self.ready.done():
                continue
            if "error" in message:
                self.ready.set_exception(EventdError(message["error"], hint=message["hint"]))
            elif "ready" in message:
                self.ready.set_result(None)

    def _relay(self, chunk: bytes) -> None:
        """Write the worker's log to standard error in whole lines, so that lines of two workers do not mix."""
        self._said += chunk
        whole, newline, rest = self._said.rpartition(b"\n")
        if newline:
            self._said = bytearray(rest)
            os.write(sys.stderr.fileno(), whole + newline)

    def _ended(self, exited: asyncio.Future[int]) -> None:
        self._silence.cancel()
        self._errors.drain(1 << 20)
        if not self.ready.done():
            how = "hung" if self._hung else "ended"
            message = f"worker {self.number} {how} before it was ready"
            self.ready.set_exception(EventdError(message, hint="see its last log lines"))

    @property
    def trouble(self) -> str:
        """Return why the process has ended before it was ready; empty if it was ready or still starts."""
        error = self.ready.exception() if self.ready.done() else None
        return "" if error is None else str(error)

    async def close(self) -> None:
        """Kill the process if it still runs, and wait until it is gone."""
        self.process.kill_and_reap()
        await self.process.wait_gone()
