"""Plugins that are functions of installed packages. They run in host processes that are reused.

A host whose run fails is killed, and the next run gets another one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventd.plugins.contract.contract import PluginFailed, RunRequest
from eventd.plugins.run.executable import (
    LOOK,
    MAX_STDERR,
    MAX_STDOUT,
    RawAnswer,
    digest_of,
    ended_by,
    kept_stderr,
    too_much,
)
from eventd.processes.guards import Guards
from eventd.processes.process import Program
from eventd.resources.plugin_configuration import PluginConfig
from eventd.resources.reading.problems import shorten
from eventd.runtime.clock import SECOND, Clock
from eventd.text.duration import format_duration

IDLE_SECONDS: Final = 60.0
"""Seconds that an idle host is kept."""
LIFE_SECONDS: Final = 600.0
"""Seconds after which a host is replaced, so that a new version of its package takes effect."""
START_SECONDS: Final = 30.0
"""Seconds that importing the plugin's module may take."""
_LENGTH: Final = 4
_FRAME: Final = MAX_STDOUT + 1024
_MAIN: Final = """\
from eventd.plugins.run.host import main
main(sys.argv[1], int(sys.argv[2]))
"""
_ABOUT_PLUGIN: Final = ("no_entry_point", "cannot_import")


class _Failed(msgspec.Struct):
    reason: str
    message: str


class _Frame(msgspec.Struct):
    status: msgspec.Raw = msgspec.Raw(b"")
    failed: _Failed | None = None


_DECODER: Final = msgspec.json.Decoder(_Frame)


class Host:
    """One host process, running one request at a time."""

    def __init__(self, process: Program, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.born = clock.monotonic()
        self.process = process
        self._out = bytearray()
        self._err = bytearray()
        self._frame: asyncio.Future[_Frame] = self._loop.create_future()
        self._kill_reason: asyncio.Future[str] = self._loop.create_future()
        self._expecting = True
        self.process.read_stdout(self._take_stdout)
        self._stderr = self.process.read_stderr(self._take_stderr)

    @property
    def alive(self) -> bool:
        """Return whether the process still runs and was not killed, so that it can serve another request."""
        return not (self.process.exited.done() or self._kill_reason.done())

    def _take_stdout(self, chunk: bytes) -> None:
        self._out += chunk
        if not self._expecting:  # not a response to a request: the host is not used again
            self._kill("protocol")
            return
        if len(self._out) < _LENGTH:
            return
        length = int.from_bytes(self._out[:_LENGTH])
        if length > _FRAME:
            self._kill("stdout_too_large")
        elif len(self._out) > _LENGTH + length:
            self._kill("protocol")
        elif len(self._out) == _LENGTH + length:
            self._expecting = False
            try:
                self._frame.set_result(_DECODER.decode(self._out[_LENGTH:]))
            except (ValueError, RecursionError):
                self._kill("protocol")

    def _take_stderr(self, chunk: bytes) -> None:
        self._err += chunk
        if len(self._err) > MAX_STDERR:
            self._kill("stderr_too_large")

    def _kill(self, reason: str) -> None:
        self.process.kill_and_reap()
        if not self._kill_reason.done():
            self._kill_reason.set_result(reason)

    async def ready(self) -> None:
        """Wait until the plugin is imported. Raises PluginFailed with `about_plugin`."""
        try:
            failed = (await self._next(START_SECONDS)).failed
        except PluginFailed as error:
            error.about_plugin = True
            if error.reason == "timeout":
                error.reason, error.hint = "cannot_import", "an import should only define things"
                error.message = f"the plugin could not be imported within {START_SECONDS:g} s"
            raise
        if failed is not None:
            raise self._failure(failed)

    async def run(self, request: bytes, longest: int) -> RawAnswer:
        """Return the answer to a request, within `longest` microseconds. If it fails, the caller kills the host."""
        self._out.clear()
        self._err.clear()
        self._frame = self._loop.create_future()
        self._expecting = True
        self.process.stdin.write(len(request).to_bytes(_LENGTH) + request, last=False)
        frame = await self._next(longest / SECOND)
        if frame.failed is not None:
            raise self._failure(frame.failed)
        return RawAnswer(None, bytes(frame.status), kept_stderr(self._err))

    async def _next(self, seconds: float) -> _Frame:
        timer = self._clock.timer(seconds)
        try:
            waits: set[asyncio.Future[Any]] = {self._frame, self.process.exited, self._kill_reason, timer}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        self._stderr.drain(MAX_STDERR)
        if self._kill_reason.done():
            raise self._killed_for(self._kill_reason.result())
        if self._frame.done():
            return self._frame.result()
        if self.process.exited.done():
            how = ended_by(self.process.exited.result())
            raise self._failed(f"the plugin's process {how}", "crashed", LOOK, transient=True)
        message = f"the plugin was killed: it ran longer than {format_duration(round(seconds * SECOND))}"
        hint = "make it faster, or raise spec.timeout of the Plugin"
        raise self._failed(message, "timeout", hint, transient=True)

    def _killed_for(self, reason: str) -> PluginFailed:
        if reason == "protocol":
            return self._failed(
                "the plugin's process was killed: something wrote into the pipe of its answers", "crashed"
            )
        return too_much(reason, "", kept_stderr(self._err))

    def _failure(self, failed: _Failed) -> PluginFailed:
        about_plugin = failed.reason in _ABOUT_PLUGIN
        hint = LOOK
        if failed.reason == "no_entry_point":
            hint = "install, where the node runs, exactly one package whose pyproject.toml has this entry point"
        message = shorten(failed.message, 400)
        return self._failed(message, failed.reason, hint, about_plugin=about_plugin)

    def _failed(
        self, message: str, reason: str, hint: str = "", *, transient: bool = False, about_plugin: bool = False
    ) -> PluginFailed:
        return PluginFailed(
            message,
            hint=hint,
            reason=reason,
            transient=transient,
            about_plugin=about_plugin,
            stdout_digest=digest_of(b""),
            stderr=kept_stderr(self._err),
        )


class Hosts:
    """The hosts of one plugin in one declaration. Each run has a host to itself."""

    def __init__(self, config: PluginConfig, clock: Clock, environment: Mapping[str, str], guards: Guards) -> None:
        self._config = config
        self._clock = clock
        self._environment = environment
        self._guards = guards
        self._all: dict[Host, None] = {}
        self._idle: dict[Host, asyncio.Future[None]] = {}
        self._retired = False

    async def run(self, request: RunRequest) -> RawAnswer:
        """Run the plugin once, and return its answer. Cancelling kills the host of the run.

        Raises PluginFailed, after killing the host of the run and all idle ones.
        """
        host = self._take() or await self._start()
        try:
            answer = await host.run(request.encode(), self._config.timeout)
        except PluginFailed:
            await self._kill_and_wait(host)
            for other in list(self._idle):  # its author may be fixing it: the next attempt loads the current code
                self._discard(other)
            raise
        except BaseException:
            await self._kill_and_wait(host)
            raise
        self._release(host)
        return answer

    @property
    def any_left(self) -> bool:
        """Return whether any host process is left, idle or busy."""
        return bool(self._all)

    def retire(self) -> None:
        """Kill idle hosts now, and busy ones when their runs end."""
        self._retired = True
        for host in list(self._idle):
            self._discard(host)

    async def close(self) -> None:
        """Kill idle hosts, and wait a few seconds for each host to end; a busy one is killed only after its run."""
        self.retire()
        for host in list(self._all):
            await host.process.wait_gone()

    def _take(self) -> Host | None:
        """Take the idle host that was used last, so that surplus hosts stay idle and expire; None if none is idle."""
        while self._idle:
            host, timer = self._idle.popitem()
            timer.cancel()
            if host.alive:
                return host
            self._discard(host)
        return None

    async def _start(self) -> Host:
        path = self._environment.get("PYTHONPATH", "").split(os.pathsep)
        try:
            process = await self._guards.start_python(_MAIN, [self._config.entry_point], self._environment, path)
        except OSError as error:
            message = f"no process could be started for the plugin: {error.strerror or error}"
            raise PluginFailed(message, reason="cannot_start", about_plugin=True, transient=True) from None
        host = Host(process, self._clock)
        self._all[host] = None
        host.process.gone.add_done_callback(lambda _: self._all.pop(host, None))
        host.process.exited.add_done_callback(lambda _: self._discard(host) if host in self._idle else None)
        try:
            await host.ready()
        except BaseException:
            await self._kill_and_wait(host)
            raise
        return host

    def _release(self, host: Host) -> None:
        if self._retired or self._clock.monotonic() - host.born > LIFE_SECONDS:
            self._discard(host)
            return
        timer = self._clock.timer(IDLE_SECONDS)
        timer.add_done_callback(lambda done: None if done.cancelled() else self._discard(host))
        self._idle[host] = timer

    def _discard(self, host: Host) -> None:
        if timer := self._idle.pop(host, None):
            timer.cancel()
        host.process.kill_and_reap()

    async def _kill_and_wait(self, host: Host) -> None:
        self._discard(host)
        await host.process.wait_gone()
