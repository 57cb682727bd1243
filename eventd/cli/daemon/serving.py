"""Runs a node as a process: handles signals, notifies the service manager, and limits the time of a stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import eventd
from eventd.cli.daemon.stop_guard import StopGuard
from eventd.cli.program.exits import ExitCode
from eventd.errors import EventdError
from eventd.observe.error_reports import ErrorReports
from eventd.processes.hidden import hide_process
from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause
from eventd.runtime.stopping import StopState
from eventd.settings.environment import tracing_environment
from eventd.settings.model import Settings
from eventd.settings.values import Endpoint
from eventd.tracing.starting import start_tracing

GRACE_SECONDS = 5.0
"""Seconds that a stop may take beyond the drain time, for closing listeners and the database."""
NOTICE_SECONDS = 2.0
"""Seconds of a stop after which it is logged what the stop waits for."""
LAST_LINE_SECONDS = 1.0
"""Seconds that the last line of a forced end may take: the reader of the log may have stopped reading."""
ONE_REQUEST_SECONDS = 0.5
"""Signals within this many seconds count as one request to stop: some programs, such as `timeout`, send a signal
twice."""
_STOPS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOPS, signal.SIGHUP)

logger = logging.getLogger("eventd.serve")


class Service(Protocol):
    """The interface of what `ServiceRunner` runs: a node, its workers, or a standby.

    `start` closes what it opened when it fails or is cancelled. Cancelling `run_until_stopped` leaves the node running.
    `stop` drains and closes, and may be called again; `stop_state` returns what it waits for meanwhile.
    """

    @property
    def api_address(self) -> tuple[str, int] | None: ...

    async def start(self) -> None: ...

    async def run_until_stopped(self) -> None: ...

    async def reload(self) -> None: ...

    async def stop(self) -> None: ...

    def stop_state(self) -> StopState: ...


class Manager(Protocol):
    """The interface that receives the state of the process, such as `ServiceManager`."""

    def ready(self, status: str, /) -> None: ...

    def reloading(self) -> None: ...

    def stopping(self) -> None: ...

    def keep_alive(self) -> None: ...

    def close(self) -> None: ...


class ServiceRunner:
    """Runs one `Service` from the loop's main task.

    SIGTERM and SIGINT drain it, a second one (after 0.5 s or more) exits the process at once, SIGHUP re-reads its
    keys and secrets. `guard` ends the process if the loop is blocked and can do neither.
    """

    def __init__(
        self,
        node: Service,
        settings: Settings,
        manager: Manager,
        clock: Clock,
        guard: StopGuard,
        announce: Callable[[Endpoint], None] | None = None,
    ) -> None:
        self._node = node
        self._announce = announce
        self._settings = settings
        self._manager = manager
        self._clock = clock
        self._guard = guard
        self._end: signal.Signals | None = None
        self._asked_at: float | None = None
        self._is_forced = False
        self._reload = False
        self._status = ""
        self._yields_to: tuple[signal.Signals, ...] = ()

    async def run(self) -> None:
        """Start the node, run until a signal asks for the end or the node fails, then stop it. Raises the node's error.

        A stop that takes too long ends the process.
        """
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        self._manager.keep_alive()
        try:
            with self._guard.receive_signals(self._limit_stop):
                await self._run()
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def _run(self) -> None:
        try:
            if await self._unless_signalled(self._node.start, _STOPS):
                await self._attend()
        finally:
            await self._stop()

    def _limit_stop(self, number: int) -> None:
        """Limit the time of the stop that a signal asks for, in the guard's thread: the loop may be blocked."""
        if number not in _STOPS:
            return
        now = self._clock.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            self._guard.limit(self._longest_stop + LAST_LINE_SECONDS, ExitCode.OK)
        elif now - self._asked_at > ONE_REQUEST_SECONDS:
            self._is_forced = True
            self._guard.limit(LAST_LINE_SECONDS, ExitCode.ERROR)

    @property
    def _longest_stop(self) -> float:
        return self._settings.drain_timeout + GRACE_SECONDS

    def _signalled(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP:
            self._reload = True
        elif self._end is None:
            self._end = number
        elif self._is_forced:
            # A second signal means now. Acknowledged events are durable, so nothing is lost.
            logger.warning("forced exit", extra={"signal": number.name})
            os._exit(ExitCode.ERROR)
        if number in self._yields_to and self._main is not None:
            self._yields_to = ()  # one interruption is enough
            self._main.cancel()

    async def _unless_signalled(
        self, step: Callable[[], Coroutine[Any, Any, None]], signals: tuple[signal.Signals, ...]
    ) -> bool:
        """Run `step` and return True.

        If one of `signals` arrives before the step has ended, cancel the step and return False.
        """
        if self._end or (self._reload and signal.SIGHUP in signals):
            return False
        self._yields_to = signals
        try:
            await step()
            return True
        except asyncio.CancelledError:
            if self._yields_to or self._main is None:  # cancelled by another task
                raise
            self._main.uncancel()
            return False
        finally:
            self._yields_to = ()

    async def _attend(self) -> None:
        address = Endpoint(*self._node.api_address) if self._node.api_address else None
        if self._settings.port_file and address:
            write_port_file(self._settings.port_file, address)
        if self._announce and address:
            self._announce(address)
        self._status = f"API on {address}"
        self._manager.ready(self._status)
        shown = {setting.name: setting.value for setting in self._settings.describe()}
        about = {"api": str(address), "database": shown["database_url"], "version": eventd.__version__}
        logger.info("ready", extra=about)
        try:
            while not await self._unless_signalled(self._node.run_until_stopped, _SIGNALS):
                if self._end:
                    logger.info("stopping", extra={"signal": self._end.name})
                    return
                await self._reread()
        finally:
            if self._settings.port_file:
                self._settings.port_file.unlink(missing_ok=True)

    async def _reread(self) -> None:
        self._reload = False
        self._manager.reloading()
        try:
            await self._node.reload()
        except EventdError as error:  # the keys and secrets that were read before stay in effect
            logger.error("reload failed", extra={"error": str(error)})
        except Exception:  # a defect here must not end a node that works
            logger.exception("reload failed")
        self._manager.ready(self._status)

    async def _stop(self) -> None:
        self._manager.stopping()
        now = self._clock.monotonic()
        begun = now if self._asked_at is None else self._asked_at
        left = begun + self._longest_stop - now
        if self._asked_at is None:
            self._guard.limit(left + LAST_LINE_SECONDS, ExitCode.ERROR)
        notice = self._clock.timer(NOTICE_SECONDS)
        notice.add_done_callback(lambda timer: None if timer.cancelled() else self._note_wait(begun))
        try:
            async with asyncio.timeout(left):
                await self._node.stop()
        except TimeoutError:
            self._force_exit(begun)
        finally:
            notice.cancel()
            self._manager.close()
        logger.info("stopped")

    def _force_exit(self, begun: float) -> None:
        """Log what the stop waits for, also if its description fails, and end the process."""
        try:
            about = self._describe_stop(begun)
        except Exception as error:
            about = {"error": repr(error)}
        logger.warning("stop timed out", extra=about)
        os._exit(ExitCode.ERROR if self._asked_at is None else ExitCode.OK)  # no signal: the node has failed

    def _note_wait(self, begun: float) -> None:
        logger.warning("stop waits", extra=self._describe_stop(begun))

    def _describe_stop(self, begun: float) -> dict[str, Any]:
        state = self._node.stop_state()
        seconds = round(self._clock.monotonic() - begun, 1)
        return {"seconds": seconds, "closing": state.closing, "connections": state.connections, "work": state.work}


def write_port_file(path: Path, address: Endpoint) -> None:
    """Write the address of the API to a file, in one step: a reader never sees a part of the address."""
    # Other users may write to the folder: a predictable name could be a link to another file of this user.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            os.fchmod(handle, 0o644)
            file.write(f"{address}\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def run_service(
    make: Callable[[], Service],
    settings: Settings,
    manager: Manager,
    clock: Clock,
    announce: Callable[[Endpoint], None] | None = None,
) -> None:
    """Run a node on a new loop until it has stopped. Raises `EventdError` and OSError.

    Tunes the interpreter, and hides this process's memory unless a debugger is allowed. `announce` is called with the
    API's address once the node has started.
    """
    # The loop and the database's threads exchange the interpreter lock at every transaction. With the default switch
    # interval, the waiting thread would get it only after 5 ms of the other's work, on every commit.
    sys.setswitchinterval(0.0005)
    gc.freeze()  # for the garbage collector see `collector`
    if not settings.allow_debugger:
        hide_process()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run_node(make, settings, manager, clock, StopGuard(), announce))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop, which makes every request much cheaper; None if it is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def run_node(
    make: Callable[[], Service],
    settings: Settings,
    manager: Manager,
    clock: Clock,
    guard: StopGuard,
    announce: Callable[[Endpoint], None] | None = None,
) -> None:
    """Create a node on this loop and run it. Raises `EventdError`, also for an unexpected error, and OSError."""
    end_tracing = start_tracing(
        tracing_environment(), eventd.__version__, clock.monotonic, trusts_hints=settings.trust_trace_hints
    )
    reports = ErrorReports(LogPause(clock.monotonic))
    logging.getLogger("eventd").addHandler(reports)
    try:
        await ServiceRunner(make(), settings, manager, clock, guard, announce).run()
    except (EventdError, OSError):
        raise
    except Exception as error:
        logger.exception("node failed")
        raise EventdError(
            f"the node failed: {type(error).__name__}", hint="its log has the details; please report it"
        ) from error
    finally:
        logging.getLogger("eventd").removeHandler(reports)
        end_tracing()
