"""A peer that is cut off, in every way networks and machines can do it: no other peer is affected, nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.declared import PLAIN_GROUP, peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer, Forward, Hang, ReceivedRequest
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.waiting import wait_for


@contextlib.contextmanager
def _flaky(target: NodeProcess) -> Iterator[FlakyPeer]:
    with FlakyPeer(free_port(), lambda _: Forward(), target=target.port) as between:
        yield between


def test_a_frozen_peer_delays_nobody_and_catches_up_when_it_thaws(processes: Processes) -> None:
    a, b, c = (NodeProcess(processes, name) for name in "abc")
    b.join()
    c.join()
    a.join()
    a.apply(peer("b", b.port, limits={"timeout": "1s"}), peer("c", c.port, limits={"timeout": "1s"}))
    a.emit("first")
    b.wait_holds({"first"})
    b.process.send(signal.SIGSTOP)
    try:
        ids = [f"e{number}" for number in range(30)]
        begun = time.monotonic()
        for each in ids:
            a.emit(each)
        c.wait_holds(set(ids))
        assert time.monotonic() - begun < 10
        link = a.wait_link("b", "backing-off", "timeout")
        assert "no answer within 1 s" in link["lastError"]
        assert a.link("b")["lagEvents"] == 30
        assert a.link("c")["state"] == "running"
    finally:
        b.process.send(signal.SIGCONT)
    b.wait_holds(set(ids), seconds=10)
    assert b.ids() == ["first", *ids]
    a.wait_sent("b")
    assert a.link("b")["state"] == "running"
    assert b.counts() == (31, 31)


def test_an_outage_drops_nothing_that_is_alive(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.join(b, retention={"maxEvents": 10})
    a.emit("seen")
    b.wait_holds({"seen"})
    b.kill9()
    ids = [f"e{number:04}" for number in range(1500)]
    for start in range(0, 1500, 500):
        a.emit(*ids[start : start + 500])
    a.emit("short", ttl="1ms")
    a.wait_link("b", "backing-off", "unreachable")
    a.ask("POST", "/groups/edge/prune", {})
    a.kill9()
    a.start()
    b.start()
    b.wait_holds(set(ids))
    assert b.ids() == ["seen", *ids]
    a.wait_sent("b")
    wait_for(lambda: a.ask("POST", "/groups/edge/prune", {})["removed"] > 0, "sealed events to be removed")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (FixedResponse(503, (("Retry-After", "1"),)), "http_503"),
        (Hang(), "timeout"),
    ],
    ids=["503", "silence"],
)
def test_a_peer_in_trouble_is_asked_ever_more_rarely_and_found_again(
    processes: Processes, answer: FixedResponse | Hang, reason: str
) -> None:
    a, b, c = (NodeProcess(processes, name) for name in "abc")
    b.join()
    c.join()
    a.join(c, **PLAIN_GROUP)
    with _flaky(b) as between:
        between.behave = lambda _: answer
        a.apply(peer("b", between.port, limits={"timeout": "300ms"}, retry={"baseBackoff": "50ms", "maxBackoff": "2s"}))
        a.emit("one")
        c.wait_holds({"one"})
        a.wait_link("b", "backing-off", reason)
        enough = 3 if isinstance(answer, FixedResponse) else 6
        wait_for(lambda: a.link("b")["attempts"] >= enough, f"{enough} attempts")
        tries = [heard.at for heard in between.heard]
        gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
        if isinstance(answer, FixedResponse) and answer.headers:
            assert min(gaps) >= 0.95  # as configured
        else:
            assert gaps[4] > gaps[0]  # 16 times the wait: more than a loaded machine adds
        between.behave = lambda _: Forward()
        b.wait_holds({"one"}, seconds=8)
        a.wait_link("b", "running")
    assert b.counts() == (1, 1)


def test_a_network_that_breaks_again_and_again_loses_and_doubles_nothing(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    count = 0

    def behave(_: ReceivedRequest) -> Forward | Hang:
        nonlocal count
        count += 1
        return Hang() if count % 7 == 0 else Forward(0.001)

    with _flaky(b) as there, _flaky(a) as back:
        there.behave = back.behave = behave
        for node, to, between in ((a, b, there), (b, a, back)):
            node.apply(peer(to.name, between.port, limits={"timeout": "500ms", "batchEvents": 20}))
        ids = {node.name: [f"{node.name}{number:03}" for number in range(120)] for node in (a, b)}
        for start in range(0, 120, 20):
            for node in (a, b):
                node.emit(*ids[node.name][start : start + 20])
            if start % 60 == 0:
                there.drop_connections()
                back.drop_connections()
        a.wait_sent("b", seconds=60)
        b.wait_sent("a", seconds=60)
    assert b.ids(source="a") == ids["a"]
    assert a.ids(source="b") == ids["b"]
    assert a.counts() == b.counts() == (240, 240)
