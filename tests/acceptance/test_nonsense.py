"""Invalid input from strangers, broken programs and broken disks: a clear answer, no crash, nothing lost."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import os
import random
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Processes
from tests.support.running import SECRET, ApiError, NodeProcess
from tests.support.v1_node import V1Sender, body_of
from tests.support.v2_sender import V2Sender, line, raw
from tests.support.waiting import wait_for

_FAULTS = ("Traceback", "Unhandled exception", "Error handling request", "Task exception", "never retrieved")


@pytest.fixture
def node(processes: Processes) -> Iterator[NodeProcess]:
    """A node with a group; at the end it must be ready, and its log must contain no fault."""
    running = NodeProcess(processes, "b")
    running.join()
    running.emit("before")
    yield running
    running.emit("after")
    assert running.ids()[0] == "before"
    assert running.ids()[-1] == "after"
    assert running.process.get("/readyz")[0] == 200
    log = running.process.log()
    assert not [fault for fault in _FAULTS if fault in log], running.process.log_tail()


_UNFINISHED = ("http 0.9", "half a body", "half a chunk", "cut chunks", "no http")
"""Requests whose sender disconnects in the middle: no client is left to answer."""


def _answer(port: int, request: bytes, *, seconds: float) -> tuple[int, bytes]:
    """Return the status and the first bytes of the answer; 0 if none comes for a while."""
    told = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link, contextlib.suppress(OSError):
        link.sendall(request)
        while b"\r\n\r\n" not in told and (more := link.recv(65536)):
            told += more
    return int(told.split(b" ", 2)[1]) if told.startswith(b"HTTP/1.") else 0, told


def _requests() -> dict[str, bytes]:
    host = b"Host: 127.0.0.1\r\n"
    chunked = b"POST %b HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n"
    length = b"POST %b HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n\r\n%b"
    noise = random.Random(7).randbytes(4096)
    return {
        "binary": noise,
        "no http": b"hello?\r\n\r\n",
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise[:200],
        "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "http 0.9": b"GET /\r\n",
        "endless line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        "huge header": b"POST %b HTTP/1.1\r\n" + host + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        "many headers": b"POST %b HTTP/1.1\r\n" + host + b"".join(b"X%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        "two lengths": b"POST %b HTTP/1.1\r\n" + host + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "length and chunks": chunked.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n0"),
        "negative length": b"POST %b HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n",
        "no length": b"POST %b HTTP/1.1\r\n" + host + b"\r\n",
        "half a body": b"POST %b HTTP/1.1\r\n" + host + b"Content-Length: 5000\r\n\r\n" + b"x" * 10,
        "bad chunk": chunked + b"zz\r\nhello\r\n",
        "half a chunk": chunked + b"ff\r\nhello",
        "cut chunks": chunked + b"5\r\nhello\r\n",
        "no json": length.replace(b"%d\r\n\r\n%b", b"5\r\nContent-Type: application/json\r\n\r\n{{{{{"),
        "deep json": length.replace(
            b"%d\r\n\r\n%b", b"200000\r\nContent-Type: application/json\r\n\r\n" + b"[" * 200_000
        ),
        "header without colon": b"POST %b HTTP/1.1\r\n" + host + b"nonsense\r\n\r\n",
        "null in header": b"POST %b HTTP/1.1\r\n" + host + b"X: a\0b\r\n\r\n",
        "wrong encoding": b"POST %b HTTP/1.1\r\n" + host + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        "absolute": b"POST http://elsewhere/%b HTTP/1.1\r\n" + host + b"\r\n",
        "connect": b"CONNECT elsewhere:443 HTTP/1.1\r\n" + host + b"\r\n",
        "upgrade": b"POST %b HTTP/1.1\r\n" + host + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "expect": b"POST %b HTTP/1.1\r\n" + host + b"Expect: 200-maybe\r\nContent-Length: 0\r\n\r\n",
        "dots": b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"\r\n",
        "percent": b"GET /%%00%%ff%%zz HTTP/1.1\r\n" + host + b"\r\n",
    }


_PATHS = {
    "peers": (b"/v1/events", b"/v2/events", b"/v2/link"),
    "api": (b"/api/v1/groups/edge/events", b"/api/v1/resources/apply"),
}


def _ports_and_paths(node: NodeProcess) -> list[tuple[int, bytes]]:
    ports = {"peers": node.port, "api": node.process.port}
    return [(port, path) for door, port in ports.items() for path in _PATHS[door]]


def test_requests_that_are_none_get_a_client_error_and_do_no_harm(node: NodeProcess) -> None:
    for port, path in _ports_and_paths(node):
        for name, request in _requests().items():
            seconds = 0.05 if name in _UNFINISHED else 5.0
            status, answer = _answer(port, request.replace(b"%b", path).replace(b"%%", b"%"), seconds=seconds)
            expected = 400 <= status < 500 or (name in _UNFINISHED and status == 0)
            assert expected, f"{name} at {path!r}: {answer[:300]!r}"
            assert b"Traceback" not in answer
            if status >= 400:
                assert SECRET.encode() not in answer
    assert node.ids() == ["before"]


def test_a_body_that_breaks_while_it_is_read_is_the_senders_fault(node: NodeProcess) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    breaks = [
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"zz\r\nhello\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"5\r\nhelloXX0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", None),
        (b"Content-Length: 100\r\n\r\nhello", None),
        (b"Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\nhello", b"world"),
        (b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"0\r\n\r\n"),
    ]
    for port, path in _ports_and_paths(node):
        for first, then in breaks:
            with socket.create_connection(("127.0.0.1", port), timeout=0.2) as link, contextlib.suppress(OSError):
                link.sendall((head + first).replace(b"%b", path))
                time.sleep(0.03)  # so that it is being read already
                if then is None:
                    continue  # the sender disconnects
                link.sendall(then)
                answer = link.recv(65536)  # or no answer: the node may wait for the rest of an invalid body
                assert 400 <= int(answer.split(b" ", 2)[1]) < 500, f"{first!r} at {path!r}: {answer[:300]!r}"
    assert node.ids() == ["before"]


def test_gzip_is_refused_and_never_unpacked(node: NodeProcess) -> None:
    bomb = gzip.compress(bytes(50 << 20), compresslevel=1)
    sender = V1Sender(node.port, SECRET.encode())
    assert sender.post(bomb).status == 400  # signed as it is, so it passes until it is parsed as an event
    assert V2Sender(node.port).send(raw("/v2/events", {"Content-Encoding": "gzip"}, bomb, node.port)).status == 415
    rss = _memory(node)
    assert rss < 250 << 20


def test_pipelined_requests_are_answered_in_order(node: NodeProcess) -> None:
    sender = V2Sender(node.port, to="b")
    requests = [sender.batch(line(f"e{number}")) for number in range(20)]
    with socket.create_connection(("127.0.0.1", node.port), timeout=10) as link:
        link.sendall(b"".join(requests))
        told = b""
        while told.count(b"HTTP/1.1 200") < 20:
            more = link.recv(65536)
            assert more, told[-500:]
            told += more
    assert node.ids() == ["before", *(f"e{number}" for number in range(20))]


def test_slow_and_silent_connections_keep_nobody_out(node: NodeProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(300):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=5))
            if number % 3 == 1:
                link.sendall(b"POST /v2/events HTTP/1.1\r\nHost: x\r\nContent-Le")
            elif number % 3 == 2:
                link.sendall(b"POST /v2/events HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nabc")
        sender = V2Sender(node.port)
        begun = time.monotonic()
        assert sender.send(sender.batch(line("one"))).status == 200
        assert time.monotonic() - begun < 3
    assert node.ids() == ["before", "one"]


def test_hundreds_of_bad_signatures_store_nothing_and_keep_nobody_out(node: NodeProcess) -> None:
    v1, v2 = V1Sender(node.port, b"a guess"), V2Sender(node.port)
    bad = v2.batch(line("bad")).replace(b"sig", b"sig", 1).replace(b"expires=", b"expires=1")
    before = _memory(node)

    def flood(count: int) -> None:
        with socket.create_connection(("127.0.0.1", node.port), timeout=10) as link, link.makefile("rb") as answers:
            for _ in range(count):
                link.sendall(bad)
                assert answers.readline().startswith(b"HTTP/1.1 401")
                length = 0
                while (header := answers.readline()) != b"\r\n":
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                answers.read(length)

    floods = [threading.Thread(target=flood, args=(250,)) for _ in range(3)]
    for each in floods:
        each.start()
    for number in range(10):
        assert v1.post(body_of(f"x{number}")).status == 401
        node.emit(f"own-{number}")
    for each in floods:
        each.join(60)
    assert node.ids() == ["before", *(f"own-{number}" for number in range(10))]
    assert _memory(node) - before < 15 << 20
    metrics = node.process.get("/metrics")[1].decode()
    assert 'reason="bad_signature"' in metrics


def _memory(node: NodeProcess) -> int:
    """Return the resident memory of the process."""
    text = Path(f"/proc/{node.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def test_wrong_types_and_unknown_names_are_told_by_place(node: NodeProcess) -> None:
    cases = [
        ({"events": [{"type": 7}]}, "type must be text"),
        ({"events": [{"type": "t", "payload": {"a": 1}}]}, "payload"),
        ({"events": [{"type": "t", "ide": "x"}]}, "did you mean id?"),
        ({"events": [{"type": "t", "id": "a\0b"}]}, "U+0000"),
        ({"events": [{"type": "t", "id": "\ud800"}]}, ""),
        ({"events": [{"type": "t", "id": "x" * 600}]}, "512"),
        ({"events": []}, "events"),
        ({"events": "x"}, "events"),
        ({}, "events"),
    ]
    for body, words in cases:
        with pytest.raises(ApiError, match="400") as caught:
            node.ask("POST", "/groups/edge/events", body)
        assert words in str(caught.value)
    with pytest.raises(ApiError, match="404"):
        node.ask("POST", "/groups/nowhere/events", {"events": [{"type": "t"}]})


# --- disks ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _small_disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(node: NodeProcess) -> tuple[list[str], ApiError]:
    """Emit events until the node refuses; return the acknowledged ones and the refusal."""
    taken: list[str] = []
    for number in range(4000):
        event = f"e{number:05}"
        try:
            node.emit(event, payload={"k": "v" * 8000})
        except ApiError as refused:
            return taken, refused
        taken.append(event)
    raise AssertionError("the disk never filled up")


def _check_full(node: NodeProcess, taken: list[str], refused: ApiError, words: str) -> None:
    assert refused.status == 503
    assert refused.code == "database_unavailable"
    assert words in str(refused)
    assert node.ids() == taken  # it still answers reads
    sender = V1Sender(node.port, SECRET.encode())
    large = {"k": "v" * 40_000}  # the free space may just suffice for one more like those before
    assert sender.post(body_of("x", payload=large)).body == b"store error\n"
    v2 = V2Sender(node.port, to=node.name)
    assert v2.send(v2.batch(line("y", payload=large))).status == 503  # type: ignore[arg-type]
    assert node.process.running


def _check_readiness(node: NodeProcess, status: int) -> None:
    """Check readiness first: no write happens meanwhile, which could change it."""
    for path in ("/readyz", "/v0/ready"):
        wait_for(lambda path=path: node.process.get(path)[0] == status, f"{path} to be answered with {status}")  # type: ignore[misc]


def _check_resumed(node: NodeProcess, taken: list[str]) -> None:
    def takes() -> bool:
        with contextlib.suppress(ApiError):
            node.emit("resumed")
            return True
        return False

    wait_for(takes, "the node to take events again")
    assert node.ids() == [*taken, "resumed"]
    node.kill9()
    node.start()
    assert node.ids() == [*taken, "resumed"]
    log = node.process.log()
    assert not [fault for fault in _FAULTS if fault in log], node.process.log_tail()


def test_a_full_disk_refuses_and_loses_nothing_and_space_that_returns_is_used(processes: Processes) -> None:
    place = processes.directory / "b"
    with _small_disk(place, "6m"):
        ballast = place / "ballast"
        ballast.write_bytes(bytes(2 << 20))
        try:
            node = NodeProcess(processes, "b")
            node.join()
            taken, refused = _fill(node)
            assert len(taken) > 20
            _check_full(node, taken, refused, "disk is full")
            _check_readiness(node, 503)
            ballast.unlink()
            _check_readiness(node, 200)
            _check_resumed(node, taken)
        finally:
            processes.close()


def test_a_file_that_may_not_grow_refuses_and_loses_nothing(processes: Processes) -> None:
    node = NodeProcess(processes, "b")
    node.join()
    node.emit("first")
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))
    taken, refused = _fill(node)
    _check_full(node, ["first", *taken], refused, "disk I/O error")
    _check_readiness(node, 503)
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, unlimited)
    _check_readiness(node, 200)
    _check_resumed(node, ["first", *taken])


def test_a_peer_whose_disk_is_full_gets_everything_when_it_has_space_again(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.join(b)
    resource.prlimit(b.process.pid, resource.RLIMIT_FSIZE, (2 << 20, resource.RLIM_INFINITY))
    ids = [f"e{number:04}" for number in range(500)]
    for start in range(0, 500, 50):
        a.emit(*ids[start : start + 50], payload={"k": "v" * 8000})
    link = a.wait_link("b", "backing-off", "unavailable")
    assert "cannot process requests now" in link["lastError"]
    resource.prlimit(b.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    b.wait_holds(set(ids))
    assert b.ids() == ids
    assert b.counts() == (500, 500)


def test_a_damaged_database_is_named_and_nothing_is_started(processes: Processes) -> None:
    node = NodeProcess(processes, "b")
    node.join()
    node.emit(*[f"e{number}" for number in range(200)])
    node.stop()
    whole = node.file.read_bytes()
    garbage, truncated = b"this is no database at all" * 1000, whole[: len(whole) // 2]
    for spoiled in (garbage, truncated, whole[:100] + bytes(len(whole) - 100)):
        node.file.write_bytes(spoiled)
        before = len(node.process.log())
        node.process.start()
        assert node.process.wait_exit() == 1
        assert str(node.file) in node.process.log()[before:]
    assert "Traceback" not in node.process.log()
    node.file.write_bytes(whole)
    node.start()
    assert len(node.ids()) == 200


def test_a_database_that_is_damaged_under_a_running_node_is_said_and_ends_nothing_else(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    a.emit("one")
    b.wait_holds({"one"})
    for file in (a.file, a.file.with_name("eventd.db-wal")):
        with file.open("r+b") as spoiled:
            spoiled.write(b"nothing of use " * (file.stat().st_size // 15))

    def refuses() -> ApiError | None:
        try:
            a.emit("two")
        except ApiError as refused:
            return refused
        return None

    refused = wait_for(refuses, "the node to notice")
    assert refused is not None
    assert (refused.status, refused.code) == (503, "database_unusable")
    assert str(a.file) in str(refused)
    wait_for(lambda: a.process.get("/readyz")[0] == 503, "the node to say that it is not ready")
    assert a.process.get("/healthz")[0] == 200
    b.emit("three")
    b.wait_link("a", "backing-off", "unavailable")
    assert not [fault for fault in _FAULTS if fault in a.process.log()], a.process.log_tail()


def test_an_api_that_is_asked_while_the_node_stops_answers_or_closes(processes: Processes) -> None:
    node = NodeProcess(processes, "b")
    node.join()
    acknowledged: list[str] = []
    end = threading.Event()

    def emit(worker: int) -> None:
        number = 0
        while not end.is_set():
            event = f"w{worker}-{number}"
            try:
                node.emit(event)
                acknowledged.append(event)
            except (OSError, http.client.HTTPException, ValueError, ApiError, AssertionError):
                if not node.process.running:
                    return
            number += 1

    workers = [threading.Thread(target=emit, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    wait_for(lambda: len(acknowledged) > 50, "some traffic")
    assert node.stop() == 0
    end.set()
    for worker in workers:
        worker.join(20)
    node.start()
    assert set(acknowledged) <= set(node.ids())
    log = node.process.log()
    assert not [fault for fault in _FAULTS if fault in log], node.process.log_tail()
