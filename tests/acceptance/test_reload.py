"""Changes of resources and settings at run time: they take effect without a restart, and affect nothing else."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from typing import Any

import pytest

from tests.support.declared import group, peer
from tests.support.flaky_peer import FlakyPeer, Forward
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import ApiError, NodeProcess
from tests.support.waiting import wait_for


class Stream(threading.Thread):
    """A steady stream of events into one node."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(name=f"stream {node.name}")
        self.node = node
        self.ids: list[str] = []
        self._end = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._end.wait(0.02):
            event = f"{self.node.name}-{len(self.ids):05}"
            self.node.emit(event)
            self.ids.append(event)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(20)

    def wait_more(self, count: int = 10) -> None:
        """Wait until this number of further events was acknowledged."""
        target = len(self.ids) + count
        wait_for(lambda: len(self.ids) >= target, f"{count} more events to be taken")


def test_the_change_of_one_peer_does_not_disturb_another(processes: Processes) -> None:
    a, b, c = (NodeProcess(processes, name) for name in "abc")
    b.join()
    c.join()
    a.join()
    with FlakyPeer(free_port(), lambda _: Forward(), target=b.port) as between:
        a.apply(peer("b", between.port, limits={"inFlight": 1}), peer("c", c.port))
        with Stream(a) as stream:
            stream.wait_more()
            before = between.connections
            queries = between.paths().count("/v2/link")
            for turn in range(3):
                a.apply(peer("c", c.port, types=[f"t{turn}", "t"]))
                stream.wait_more(5)
            a.apply(peer("d", free_port()))
            stream.wait_more(5)
            a.ask("DELETE", "/resources/EventPeer/edge-d")
            a.ask("DELETE", "/resources/EventPeer/edge-c")
            stream.wait_more(5)
            a.apply(peer("c", c.port))
            stream.wait_more(5)
        a.wait_sent("b", "c")
        # the same connection stayed open, and the link did not restart
        assert between.connections == before
        assert between.paths().count("/v2/link") == queries
    assert b.ids() == stream.ids
    assert c.ids() == stream.ids
    assert b.counts() == c.counts() == (len(stream.ids), len(stream.ids))


def test_the_listener_moves_and_peers_follow(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b)
    with Stream(a) as stream:
        stream.wait_more()
        b.port = free_port()
        b.join()
        a.wait_link("b", "backing-off", "unreachable")
        a.apply(peer("b", b.port))
        b.wait_holds({stream.ids[-1]})
    a.wait_sent("b")
    assert b.ids() == stream.ids


def test_a_peer_and_a_group_that_are_deleted_are_left_alone_from_then_on(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b)
    a.emit("one")
    b.wait_holds({"one"})
    with pytest.raises(ApiError, match="conflict"):
        a.ask("DELETE", "/resources/EventGroup/edge")
    a.ask("DELETE", "/resources/EventPeer/edge-b")
    a.emit("two")
    a.ask("DELETE", "/resources/EventGroup/edge")

    def deaf() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", a.port), timeout=2):
            return False
        return True

    wait_for(deaf, "the listener to be closed")
    with pytest.raises(ApiError, match="not_found"):
        a.emit("three")
    assert b.ids() == ["one"]
    a.join(b)  # a group of the same name, which has nothing of the old one
    a.emit("four")
    b.wait_holds({"one", "four"})
    assert a.ids() == ["four"]
    assert b.counts() == (2, 2)


def test_pause_and_resume_by_the_command(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b)

    def control(*arguments: str) -> None:
        done = processes.control(*arguments, env=processes.node_environment("a"))
        assert done.returncode == 0, done.stderr

    with Stream(a) as stream:
        stream.wait_more()
        control("federation", "pause", "b", "--group", "edge")
        a.wait_link("b", "paused")
        stream.wait_more()
        held = len(b.ids())
        stream.wait_more()
        assert len(b.ids()) == held
        control("federation", "resume", "b", "--group", "edge")
        stream.wait_more()
    a.wait_sent("b")
    assert b.ids() == stream.ids


def test_a_wrong_key_blocks_and_the_right_one_heals_without_a_restart(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    right = b.secret.read_text()
    b.secret.write_text("a mistake")
    a.join(), b.join()
    a.apply(peer("b", b.port, retry={"baseBackoff": "1h", "maxBackoff": "1h"}))
    a.emit("one")
    link = a.wait_link("b", "blocked", "unauthorized")
    assert right not in str(link)
    b.secret.write_text(right)
    b.process.send(signal.SIGHUP)
    wait_for(lambda: b.process.log().count("keys reloaded"), "b to read its key")
    a.process.send(signal.SIGHUP)  # after a key was fixed, both sides must be reloaded
    b.wait_holds({"one"})
    assert a.link("b")["state"] == "running"


def test_a_rotation_of_keys_under_traffic_loses_no_event(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    for number in (1, 2):
        (processes.directory / f"key{number}").write_text(f"the secret of generation {number}")

    def declare(node: NodeProcess, one: str, two: str) -> None:
        states = {1: one, 2: two}
        keys: list[dict[str, Any]] = [
            {"id": f"k{n}", "owner": "*", "state": state, "secretFile": str(processes.directory / f"key{n}")}
            for n, state in states.items()
            if state
        ]
        node.apply(group(node.name, port=node.port, auth={"keys": keys}))

    for node in (a, b):
        declare(node, "active", "")
        node.wait_listening()
    a.apply(peer("b", b.port))
    b.apply(peer("a", a.port))
    with Stream(a) as there, Stream(b) as back:
        for one, two in (("active", "pending"), ("retiring", "active"), ("revoked", "active"), ("", "active")):
            for node in (a, b):
                declare(node, one, two)
                there.wait_more(5)
                back.wait_more(5)
        a.wait_link("b", "running")
        b.wait_link("a", "running")
    a.wait_sent("b")
    b.wait_sent("a")
    assert b.ids(source="a") == there.ids
    assert a.ids(source="b") == back.ids
    assert a.letters() == b.letters() == []
    for node in (a, b):
        assert "unauthorized" not in node.process.log()


def test_a_key_revoked_at_one_end_blocks_the_other_by_name_in_the_log(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    key = {"id": "k1", "owner": "*", "secretFile": str(a.secret)}
    other = {"id": "k2", "owner": "*", "secretFile": str(b.secret), "state": "pending"}
    a.apply(group("a", port=a.port, auth={"keys": [key]}), peer("b", b.port))
    b.apply(group("b", port=b.port, auth={"keys": [key | {"state": "revoked"}, other | {"state": "active"}]}))
    a.emit("one")
    a.wait_link("b", "blocked", "unauthorized")
    metrics = b.process.get("/metrics")[1].decode()
    assert 'reason="revoked_key"' in metrics
    assert b.ids() == []


def test_a_secret_that_is_missing_at_the_start_is_said_and_awaited(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.join(b)
    a.emit("one")
    b.wait_holds({"one"})
    a.stop()
    secret = a.secret.read_text()
    a.secret.unlink()
    a.process.start()
    wait_for(lambda: f"cannot read {a.secret}" in a.process.log(), "the node to name the file")
    wait_for(a.process.port_file.exists, "the node to be up all the same")
    a.emit("two")
    a.wait_link("b", "failed", "secret_unreadable")
    status, body = a.process.get("/readyz")
    assert status == 503
    assert str(a.secret) in body.decode()
    a.secret.write_text(secret)
    b.wait_holds({"one", "two"}, seconds=15)
    a.process.wait_ready()
