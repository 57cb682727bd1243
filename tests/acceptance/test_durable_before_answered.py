"""A write is on the disk before it is acknowledged: read from the system calls of real nodes and the real server.

A node may be killed, or the machine lose power, right after an answer. Other tests kill; no test can cut the power.
This one reads what was requested of the kernel, and in which order: the event into the log file, the log file to the
disk, the answer to the socket.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.bus import Bus
from tests.support.declared import group
from tests.support.fresh import create_current
from tests.support.postgres import PostgresServer
from tests.support.processes import Processes
from tests.support.running import SECRET, NodeProcess
from tests.support.tether import tethered
from tests.support.v1_node import V1Sender, body_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.strace

_SENDS = "write|writev|sendto|sendmsg"
_CALLS = "write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync"
_BYTES_SHOWN = "70000"


class Trace:
    """System calls of some processes in the order in which they happened, from `strace`."""

    def __init__(self, file: Path) -> None:
        self.lines = file.read_text(errors="replace").splitlines()

    def first(self, what: str, holds: Callable[[str], bool], *, after: int = -1) -> int:
        """Return the first line after this one that satisfies `holds`. Raises AssertionError that names `what`."""
        for number in range(after + 1, len(self.lines)):
            if holds(self.lines[number]):
                return number
        raise AssertionError(f"the trace has no {what} after line {after + 1}:\n" + self._around(after))

    def returned(self, number: int) -> int:
        """Return the line in which the call of this line returns."""
        line = self.lines[number]
        if "<unfinished ...>" not in line:
            return number
        pid = line.split()[0]

        def resumes(other: str) -> bool:
            return other.split()[0] == pid and "resumed>" in other

        return self.first("end of a call", resumes, after=number)

    def _around(self, number: int) -> str:
        return "\n".join(line[:300] for line in self.lines[max(0, number - 3) : number + 40])


def _is(line: str, calls: str, target: str) -> bool:
    return re.match(rf"\d+ +(?:{calls})\(\d+<[^>]*{target}", line) is not None


@contextmanager
def _traced(file: Path, *pids: int) -> Iterator[None]:
    """Trace these processes and their children. Skips the test if that is not possible."""
    if (program := shutil.which("strace")) is None:
        pytest.skip("strace is not installed")
    options = ["-f", "-yy", "-s", _BYTES_SHOWN, "-e", f"trace={_CALLS}", "-e", "signal=none", "-o", str(file)]
    command = [program, *options, *(part for pid in pids for part in ("-p", str(pid)))]
    notes = file.with_suffix(".notes")
    with notes.open("wb") as out:
        tracer = subprocess.Popen(tethered(command, farewell=signal.SIGTERM), stderr=out, stdin=subprocess.DEVNULL)
    try:
        wait_for(
            lambda: tracer.poll() is not None or notes.read_text().count(" attached") >= len(pids),
            f"strace to be attached to {pids}",
        )
        if tracer.poll() is not None:
            pytest.skip(f"strace may not look at processes here: {notes.read_text().strip()}")
        yield
    finally:
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)
        tracer.wait(20)


def _descendants(pid: int) -> list[int]:
    """Return a process and its present descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _descendants(int(child))
    return found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, processes: Processes) -> Iterator[tuple[str | None, list[int]]]:
    """The URL of a node's database, and the processes besides the node that write it."""
    if request.param == "sqlite":
        yield None, []
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = create_current(server)
    yield url, [server.pid]
    processes.close()
    server.drop_database(url)


def _assert_durable(trace: Trace, answer: str, *written: str) -> None:
    """Assert that `written` is in the write-ahead log, and that on the disk, before a byte of the answer is sent."""
    log = r"(?:eventd\.db-wal|pg_wal/[0-9A-F]{24})"
    answered = trace.first(f"answer {answer}", lambda line: _is(line, _SENDS, "TCP") and '"HTTP/1.1 ' in line)
    assert f'"HTTP/1.1 {answer}' in trace.lines[answered], trace.lines[answered][:300]
    for text in written:
        writes = [
            at
            for at in range(answered)
            if _is(trace.lines[at], "pwrite64|pwritev|write", log) and text in trace.lines[at]
        ]
        assert writes, f"{text} was not written before the answer:\n{trace.lines[answered][:300]}"
        flushed = trace.first(
            "flush of the log", lambda line: _is(line, "fsync|fdatasync", log), after=trace.returned(writes[-1])
        )
        done = trace.returned(flushed)
        assert trace.lines[done].rstrip().endswith("= 0"), trace.lines[done]
        assert done < answered, f"answered before the disk had it:\n{trace.lines[answered][:300]}"


def _node(processes: Processes, name: str, url: str | None) -> NodeProcess:
    node = NodeProcess(processes, name, database_url=url)
    node.apply(group(name, port=node.port, secret=node.secret))
    node.wait_listening()
    return node


def _with(node: NodeProcess, writers: list[int]) -> list[int]:
    return [node.process.pid, *(pid for writer in writers for pid in _descendants(writer))]


def test_what_is_acknowledged_is_on_the_disk_before(
    processes: Processes, tmp_path: Path, store: tuple[str | None, list[int]]
) -> None:
    """An emitted event, one that is posted over v1, and a batch of a peer with its receipt."""
    url, writers = store
    node, sender = _node(processes, "b", url), NodeProcess(processes, "a")
    sender.join(node)
    sender.emit("first")
    node.wait_holds({"first"})
    sender.wait_sent("b")
    traced = _with(node, writers)
    with _traced(tmp_path / "emitted", *traced):
        node.emit("emitted-and-traced")
    _assert_durable(Trace(tmp_path / "emitted"), "200 ", "emitted-and-traced")

    with _traced(tmp_path / "posted", *traced):
        assert V1Sender(node.port, SECRET.encode()).post(body_of("posted-and-traced")).status == 200
    _assert_durable(Trace(tmp_path / "posted"), "200 ", "posted-and-traced")

    with _traced(tmp_path / "pushed", *traced):
        sender.emit("pushed-and-traced")
        sender.wait_sent("b")
    found = sender.ask("GET", "/groups/edge/deliveries", eventId="pushed-and-traced")["deliveries"]
    _assert_durable(Trace(tmp_path / "pushed"), "200 ", "pushed-and-traced", found[0]["batchId"])


def test_what_is_published_on_the_routemaster_surface_is_on_the_disk_before(
    processes: Processes, tmp_path: Path, store: tuple[str | None, list[int]]
) -> None:
    url, writers = store
    bus = Bus(processes, database_url=url)
    shop = bus.token("shop")
    bus.publish(shop, "orders", "https://x/first")
    with _traced(tmp_path / "published", *_with(bus.node, writers)):
        bus.publish(shop, "orders", "https://x/published-and-traced")
    _assert_durable(Trace(tmp_path / "published"), "200 ", "published-and-traced")
