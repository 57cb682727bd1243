"""The process of a node: signals, the deadline of a stop, the service manager, the port file.

The node here is a scripted stand-in, so that it can hang and fail on demand.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventd.cli.daemon import serving
from eventd.cli.daemon.service_manager import ServiceManager
from eventd.cli.daemon.serving import run_node, write_port_file
from eventd.cli.daemon.stop_guard import StopGuard
from eventd.errors import EventdError, Invalid
from eventd.observe.log_lines import fields_of
from eventd.runtime.stopping import StopState
from eventd.settings.loading import load
from eventd.settings.values import Endpoint
from eventd.testing import ManualClock, give_turns, until


class ObedientNode:
    """Records what it is asked; `hold` names the steps that do not end by themselves."""

    api_address = ("127.0.0.1", 4711)

    def __init__(self, *hold: str) -> None:
        self.hold = hold
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.reload_failure: Exception | None = None
        self.ended = asyncio.Event()
        self.released = asyncio.Event()

    async def _do(self, step: str) -> None:
        self.asked.append(step)
        if step in self.hold:
            await self.released.wait()

    async def start(self) -> None:
        await self._do("start")

    async def run_until_stopped(self) -> None:
        self.asked.append("run")
        await self.ended.wait()
        if self.failure:
            raise self.failure

    async def reload(self) -> None:
        await self._do("reload")
        if self.reload_failure:
            raise self.reload_failure

    async def stop(self) -> None:
        await self._do("stop")

    def stop_state(self) -> StopState:
        return StopState("api", {"publish": 2}, {"writes": 1})


class Manager:
    """The other end of the service manager's socket."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("")  # the kernel picks an abstract name
        self.socket.setblocking(False)
        self.address = "@" + self.socket.getsockname()[1:].decode()

    def heard(self) -> list[dict[str, str]]:
        """Every message so far, as its variables."""
        found = []
        while True:
            try:
                lines = self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return found
            found.append(dict(line.split("=", 1) for line in lines))


@pytest.fixture
def manager() -> Iterator[Manager]:
    made = Manager()
    yield made
    made.socket.close()


_LAST_SIGNAL = signal.SIGUSR2
"""Follows the signals of a test, to show when they are handled."""


class Running:
    """A node under way on the test's loop."""

    def __init__(
        self,
        node: ObedientNode,
        clock: ManualClock,
        task: asyncio.Task[None],
        exits: list[int],
        handled: asyncio.Event,
    ) -> None:
        self.node = node
        self.clock = clock
        self.task = task
        self.exits = exits
        self.handled = handled

    async def signal(self, *numbers: signal.Signals) -> None:
        """Send signals to this process, and wait until the loop has handled them all."""
        self.handled.clear()
        for number in (*numbers, _LAST_SIGNAL):
            signal.raise_signal(number)
        await self.handled.wait()
        await give_turns()

    async def asked(self, *steps: str) -> None:
        await until(lambda: self.node.asked == list(steps), f"{steps}, but it was {self.node.asked}")


Begin = Callable[..., Any]


@pytest.fixture
async def begin(manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Begin]:
    """Begins `run_node` with a node of the test; leaves no handler of a signal behind."""
    exits: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    monkeypatch.setattr(serving.os, "_exit", lambda code: exits.append(int(code)))

    def begin(node: ObedientNode, around: dict[str, str] | None = None, **flags: str) -> Running:
        clock = ManualClock()
        settings = load({"data_dir": str(tmp_path), "port_file": str(tmp_path / "port"), **flags}, {})
        told = ServiceManager({"NOTIFY_SOCKET": manager.address, **(around or {})}, clock)
        tasks.append(asyncio.create_task(run_node(lambda: node, settings, told, clock, guard)))
        return Running(node, clock, tasks[-1], exits, handled)

    guard, handled = StopGuard(), asyncio.Event()
    before = {number: signal.getsignal(number) for number in (*serving._SIGNALS, _LAST_SIGNAL)}
    asyncio.get_running_loop().add_signal_handler(_LAST_SIGNAL, handled.set)
    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    guard.lift()
    asyncio.get_running_loop().remove_signal_handler(_LAST_SIGNAL)
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_a_node_that_ends_by_itself_is_stopped_and_closed(begin: Begin) -> None:
    running = begin(ObedientNode())
    await running.asked("start", "run")
    running.node.ended.set()
    await running.task
    await running.asked("start", "run", "stop")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_well(begin: Begin, manager: Manager, number: signal.Signals) -> None:
    running = begin(ObedientNode())
    await running.asked("start", "run")
    await running.signal(number)
    await running.task
    await running.asked("start", "run", "stop")
    assert running.exits == []
    ready, stopping = manager.heard()
    assert ready == {"READY": "1", "STATUS": "API on 127.0.0.1:4711"}
    assert stopping["STOPPING"] == "1"


async def test_a_signal_while_starting_ends_the_start(begin: Begin, manager: Manager) -> None:
    running = begin(ObedientNode("start"))
    await running.asked("start")
    await running.signal(signal.SIGTERM)
    await running.task
    await running.asked("start", "stop")
    assert not any("READY" in said for said in manager.heard())


async def test_sighup_re_reads_and_goes_on(begin: Begin, manager: Manager) -> None:
    running = begin(ObedientNode())
    await running.asked("start", "run")
    await running.signal(signal.SIGHUP)
    await running.asked("start", "run", "reload", "run")
    said = manager.heard()
    assert [set(message) for message in said] == [
        {"READY", "STATUS"},
        {"RELOADING", "MONOTONIC_USEC"},
        {"READY", "STATUS"},
    ]
    assert said[1]["MONOTONIC_USEC"] == str(int(running.clock.monotonic() * 1_000_000))
    await running.signal(signal.SIGTERM)
    await running.task


async def test_sighup_while_starting_does_not_disturb_and_is_not_forgotten(begin: Begin) -> None:
    running = begin(ObedientNode("start"))
    await running.asked("start")
    await running.signal(signal.SIGHUP)
    running.node.released.set()
    await running.asked("start", "reload", "run")


async def test_signals_during_a_reload_wait_for_its_end(begin: Begin) -> None:
    running = begin(ObedientNode("reload"))
    await running.asked("start", "run")
    await running.signal(signal.SIGHUP)
    await running.asked("start", "run", "reload")
    await running.signal(signal.SIGHUP, signal.SIGTERM)
    running.node.released.set()
    await running.task
    await running.asked("start", "run", "reload", "stop")


@pytest.mark.parametrize(
    ("error", "logged"),
    [(Invalid("the key file is empty"), "the key file is empty"), (KeyError("x"), "KeyError")],
)
async def test_a_reload_that_fails_is_logged_and_the_node_goes_on(
    begin: Begin, caplog: pytest.LogCaptureFixture, error: Exception, logged: str
) -> None:
    running = begin(ObedientNode())
    running.node.reload_failure = error
    await running.asked("start", "run")
    await running.signal(signal.SIGHUP)
    await running.asked("start", "run", "reload", "run")
    failed = [(r.message, fields_of(r)["error"]) for r in caplog.records if r.levelname == "ERROR"]
    assert failed == [("reload failed", logged)]


async def test_signals_at_once_are_one_request(begin: Begin) -> None:
    running = begin(ObedientNode("stop"))
    await running.asked("start", "run")
    await running.signal(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
    await running.asked("start", "run", "stop")
    assert running.exits == []
    running.node.released.set()
    await running.task


async def test_a_second_request_leaves_at_once(begin: Begin) -> None:
    running = begin(ObedientNode("stop"))
    await running.asked("start", "run")
    await running.signal(signal.SIGTERM)
    await running.asked("start", "run", "stop")
    running.clock.advance(serving.ONE_REQUEST_SECONDS + 0.1)
    await running.signal(signal.SIGINT)
    assert running.exits == [1]


WAITS_FOR = {"closing": "api", "connections": {"publish": 2}, "work": {"writes": 1}}


def _logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [fields_of(record) for record in caplog.records if record.message == event]


async def test_a_stop_has_a_deadline(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    running = begin(ObedientNode("stop"), drain_timeout="10ms")
    await running.asked("start", "run")
    await running.signal(signal.SIGTERM)
    await running.task
    assert running.exits == [0]
    assert _logged(caplog, "stop timed out") == [{"seconds": 0.0, **WAITS_FOR}]


async def test_a_stop_whose_state_cannot_be_described_ends_too(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> StopState:
        raise KeyError("api")

    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    node = ObedientNode("stop")
    node.stop_state = fail  # type: ignore[method-assign]
    running = begin(node, drain_timeout="10ms")
    await running.asked("start", "run")
    await running.signal(signal.SIGTERM)
    await running.task
    assert running.exits == [0]
    assert _logged(caplog, "stop timed out") == [{"error": "KeyError('api')"}]


class FullLog(logging.Handler):
    """A log whose reader stops reading before the line `line`, which therefore blocks until the process has ended."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line
        self.blocks = threading.Event()
        self.ended = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self.line:
            self.blocks.set()
            assert self.ended.wait(20)


@pytest.fixture
def full_log(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Running], FullLog]]:
    """Makes the log full from a line on, and stops short."""
    logs: list[FullLog] = []
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LAST_LINE_SECONDS", 0.01)
    monkeypatch.setattr(serving, "NOTICE_SECONDS", 0.0)

    def fill(line: str, running: Running) -> FullLog:
        log, loop = FullLog(line), asyncio.get_running_loop()
        logs.append(log)

        def end(code: int) -> None:
            running.exits.append(code)
            log.ended.set()
            loop.call_soon_threadsafe(running.node.released.set)

        monkeypatch.setattr(serving.os, "_exit", end)
        serving.logger.addHandler(log)
        serving.logger.setLevel(logging.INFO)
        return log

    yield fill
    for log in logs:
        serving.logger.removeHandler(log)


@pytest.mark.parametrize("line", ["stopping", "stop waits", "stop timed out"])
async def test_a_log_that_takes_no_line_does_not_hold_up_the_end(
    begin: Begin, full_log: Callable[[str, Running], FullLog], line: str
) -> None:
    running = begin(ObedientNode("stop"), drain_timeout="10ms")
    await running.asked("start", "run")
    log = full_log(line, running)
    await running.signal(signal.SIGTERM)
    await running.task
    assert log.blocks.is_set()
    assert running.exits[0] == 0


async def test_a_second_request_ends_a_node_whose_log_takes_no_line(
    begin: Begin, full_log: Callable[[str, Running], FullLog]
) -> None:
    running = begin(ObedientNode("stop"), drain_timeout="1h")
    await running.asked("start", "run")
    log = full_log("forced exit", running)
    await running.signal(signal.SIGTERM)
    running.clock.advance(serving.ONE_REQUEST_SECONDS + 0.1)
    await running.signal(signal.SIGINT)
    await running.task
    assert log.blocks.is_set()
    assert running.exits[0] == 1


async def test_a_node_that_a_full_log_has_blocked_can_be_stopped(
    begin: Begin, full_log: Callable[[str, Running], FullLog]
) -> None:
    running = begin(ObedientNode(), drain_timeout="10ms")
    log = full_log("ready", running)

    def stop() -> None:
        log.blocks.wait(20)
        os.kill(os.getpid(), signal.SIGTERM)

    stopping = threading.Thread(target=stop)
    stopping.start()
    await running.task
    stopping.join()
    assert running.exits == [0]


async def test_a_failed_node_whose_stop_hangs_ends_with_an_error(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    running = begin(ObedientNode("stop"), drain_timeout="10ms")
    running.node.failure = Invalid("it is wrong")
    running.node.ended.set()
    with pytest.raises(Invalid):
        await running.task
    assert running.exits == [1]


async def test_a_stop_that_takes_two_seconds_says_once_what_it_waits_for(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    running = begin(ObedientNode("stop"))
    await running.asked("start", "run")
    await running.signal(signal.SIGTERM)
    await running.asked("start", "run", "stop")
    running.clock.advance(1.9)
    await give_turns()
    assert _logged(caplog, "stop waits") == []
    for _ in range(3):
        running.clock.advance(0.1)
        await give_turns()
    assert _logged(caplog, "stop waits") == [{"seconds": 2.0, **WAITS_FOR}]
    running.node.released.set()
    await running.task
    running.clock.advance(60)
    await give_turns()
    assert len(_logged(caplog, "stop waits")) == 1


async def test_a_stop_of_less_than_two_seconds_waits_for_nothing(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    running = begin(ObedientNode())
    await running.asked("start", "run")
    await running.signal(signal.SIGTERM)
    await running.task
    running.clock.advance(60)
    await give_turns()
    assert _logged(caplog, "stop waits") == []


@pytest.mark.parametrize("error", [Invalid("it is wrong"), OSError(98, "Address in use")])
async def test_what_a_node_says_of_its_end_is_passed_on(begin: Begin, error: Exception) -> None:
    running = begin(ObedientNode())
    running.node.failure = error
    running.node.ended.set()
    with pytest.raises(type(error)) as caught:
        await running.task
    assert caught.value is error
    await running.asked("start", "run", "stop")


async def test_a_fault_of_the_node_is_logged_and_ends_in_one_line(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    running = begin(ObedientNode())
    running.node.failure = KeyError("geheim")
    running.node.ended.set()
    with pytest.raises(EventdError, match="the node failed: KeyError") as caught:
        await running.task
    assert "geheim" not in str(caught.value)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["node failed"]


async def test_whoever_cancels_the_run_is_heard(begin: Begin) -> None:
    running = begin(ObedientNode())
    await running.asked("start", "run")
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    await running.asked("start", "run", "stop")


async def test_the_port_file_is_there_while_the_node_is(begin: Begin, tmp_path: Path) -> None:
    running = begin(ObedientNode())
    await running.asked("start", "run")
    assert (tmp_path / "port").read_text() == "127.0.0.1:4711\n"
    await running.signal(signal.SIGTERM)
    await running.task
    assert not (tmp_path / "port").exists()


def test_a_port_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "port"
    path.write_text("an older and much longer text\n")
    write_port_file(path, Endpoint("::1", 80))
    assert path.read_text() == "[::1]:80\n"
    assert list(tmp_path.iterdir()) == [path]


async def test_the_watchdog_is_answered_twice_within_its_time(begin: Begin, manager: Manager) -> None:
    running = begin(ObedientNode(), {"WATCHDOG_USEC": "4000000"})
    await running.asked("start", "run")
    assert manager.heard()[0] == {"WATCHDOG": "1"}  # from the start on
    for _ in range(2):
        running.clock.advance(2.0)
        await give_turns()
        assert manager.heard() == [{"WATCHDOG": "1"}]
    await running.signal(signal.SIGTERM)
    await running.task
    assert running.clock.waits == []


@pytest.mark.parametrize("around", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}])
async def test_nobody_who_does_not_watch_is_answered(begin: Begin, manager: Manager, around: dict[str, str]) -> None:
    running = begin(ObedientNode(), around)
    await running.asked("start", "run")
    assert running.clock.waits == []
    assert not any("WATCHDOG" in said for said in manager.heard())


@pytest.mark.parametrize("address", ["", "@nobody-listens-here", "/no/such/socket", "x" * 200])
async def test_a_service_manager_that_is_not_there_is_no_trouble(address: str) -> None:
    ServiceManager({"NOTIFY_SOCKET": address}, ManualClock()).ready("up")


async def test_a_service_manager_is_also_found_by_path(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "s"))
        ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "s")}, ManualClock()).ready("up")
        assert listening.recv(100) == b"READY=1\nSTATUS=up"
