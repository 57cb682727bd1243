"""A whole node from start to stop: it closes what it opens, and resources applied meanwhile do no harm."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import pytest
from aiohttp import ClientSession

from eventd.errors import DatabaseUnusable, Unavailable
from eventd.node.membership import Membership
from eventd.node.node import Node
from eventd.observe.log_lines import fields_of
from eventd.runtime.chance import SYSTEM
from eventd.runtime.stopping import StopState
from eventd.settings.loading import load
from eventd.store.engine import space
from eventd.store.schema.migrations import NEWEST
from eventd.testing import ManualClock, until
from tests.integration.conftest import MakeSites
from tests.support.declared import declare, group, peer
from tests.support.flaky_peer import FlakyPeer
from tests.support.leaks import open_files
from tests.support.ports import free_port


def _listeners(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_stop_in_the_middle_of_a_declaration_leaves_nothing_open(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    for turn in range(0, 12, 2):
        port = free_port()
        text = declare(group("a", port=port, secret=a.secret), peer("x", free_port()))
        await a.ask("resources.apply", sources=[{"name": "test", "text": text}])
        await asyncio.sleep(0.01 * turn)  # up to twice the time after which it takes notice
        await a.stop()
        assert not _listeners(port)
        assert open_files(a.file) == []
        await a.start()


async def test_a_stop_while_a_listener_moves_leaves_neither_open(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    before, port = free_port(), free_port()
    await a.apply(group("a", port=before, secret=a.secret))
    await until(lambda: _listeners(before), "the group to listen")
    text = declare(group("a", port=port, secret=a.secret))
    await a.ask("resources.apply", sources=[{"name": "test", "text": text}])
    membership = a.running.groups["edge"]
    while membership.address == ("127.0.0.1", before):  # noqa: ASYNC110  it is between its addresses for a few turns
        await asyncio.sleep(0)
    await a.stop()
    assert (_listeners(before), _listeners(port)) == (False, False)
    assert open_files(a.file) == []


async def test_a_stop_does_not_wait_for_a_peer_that_never_answers_and_says_so(
    sites: MakeSites, caplog: pytest.LogCaptureFixture
) -> None:
    with FlakyPeer(free_port()) as hole:
        (a,) = sites("a")
        await a.start(drain_timeout="500ms")
        await a.join()
        await a.apply(peer("hole", hole.port))
        await until(lambda: hole.heard, "the peer to be asked")
        loop = asyncio.get_running_loop()
        begun, node = loop.time(), a.running
        stopping = asyncio.create_task(a.stop())
        alone = StopState("groups", {}, {"links": 1})  # the history has been sealed by then
        await until(lambda: node.stop_state() == alone, "the stop to wait for the link alone")
        await stopping
        assert loop.time() - begun < 2
        assert node.stop_state().work == {}
    late = [fields_of(record) for record in caplog.records if record.message == "drain timed out"]
    assert late == [{"seconds": 0.5, "cursors": ["peer:edge/hole"]}]


async def test_a_stop_shows_the_connections_and_the_writes_that_it_waits_for(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    node, is_slow = a.running, threading.Event()
    assert node.api_address is not None
    events = {"events": [{"id": "one", "type": "t"}]}
    async with ClientSession("http://{}:{}".format(*node.api_address)) as session:
        node.log.database.start_write(lambda _conn: is_slow.wait(20))  # as on a slow disk
        emitting = asyncio.create_task(session.post("/api/v1/groups/edge/events", json=events))
        await until(lambda: node.log.units, "the event to wait for the writer")
        stopping = asyncio.create_task(a.stop())
        await until(lambda: node.stop_state() == StopState("api", {"api": 1}, {"writes": 1}), "the stop to wait")
        is_slow.set()
        assert (await emitting).status == 200
        await stopping
    assert node.log.units == 0


async def test_stopping_twice_and_stopping_what_never_started_is_harmless(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    node = a.running
    await node.stop()
    await node.stop()
    other = Node(load({"database_url": a.url}, {}), clock=ManualClock(), chance=SYSTEM)
    await other.stop()


async def test_a_listener_whose_address_is_taken_is_an_error_at_the_start(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    await a.stop()
    with socket.create_server(("127.0.0.1", a.port)):
        with pytest.raises(Unavailable, match=f"EventGroup 'edge': cannot listen on 127.0.0.1 port {a.port}"):
            await a.start()
        await a.stop()
    assert open_files(a.file) == []
    await a.start()
    assert _listeners(a.port)


async def test_a_listener_whose_address_is_taken_later_is_had_as_soon_as_it_is_free(sites: MakeSites) -> None:
    clock = ManualClock()
    (a,) = sites("a", clock=clock)
    await a.start()
    await a.join()
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        await a.apply(group("a", port=port, secret=a.secret))
        trouble = a.running.readiness()["group edge"]
        assert f"cannot listen on 127.0.0.1 port {port}" in trouble
    clock.advance(5.1)
    await until(lambda: a.running.readiness()["group edge"] == "ok", "the listener to be had")
    assert _listeners(port)
    assert not _listeners(a.port)


async def test_an_address_that_is_no_longer_declared_is_no_trouble(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    with socket.create_server(("127.0.0.1", port := free_port())):
        await a.apply(group("a", port=port, secret=a.secret))
        assert "cannot listen" in a.running.readiness()["group edge"]
        await a.apply(group("a", secret=a.secret))
        assert a.running.readiness()["group edge"] == "ok"


async def test_a_group_that_does_not_listen_yet_is_not_ready(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    (a,) = sites("a")
    await a.start()
    listen, go_on = Membership._listen, asyncio.Event()

    async def late(membership: Membership) -> None:
        await go_on.wait()
        await listen(membership)

    monkeypatch.setattr(Membership, "_listen", late)
    joining = asyncio.create_task(a.join())  # ends when the group is served
    try:
        await until(lambda: "group edge" in a.running.readiness(), "the group to be there")
        assert a.running.readiness()["group edge"] == "the group does not listen yet"
    finally:
        go_on.set()
        await joining
    assert a.running.readiness()["group edge"] == "ok"


async def test_a_secret_that_appears_late_lets_everything_go_on(sites: MakeSites) -> None:
    clock = ManualClock()
    (a,), (b,) = sites("a", clock=clock), sites("b", clock=clock)
    await b.start()
    await b.join()
    text = a.secret.read_text()
    a.secret.unlink()
    await a.start()
    await a.join(b)
    await a.emit("one")
    cursor = await a.in_state("b", "failed", "secret_unreadable")
    assert str(a.secret) in cursor.last_error
    assert "cannot read" in a.running.readiness()["group edge"]
    a.secret.write_text(text)

    async def arrived() -> bool:  # the link may not have begun to wait when it is shown as failed
        clock.advance(1.1)
        return await b.ids() == ["one"]

    await until(arrived, "the event to arrive")
    await a.in_state("b", "running")
    assert a.running.readiness()["group edge"] == "ok"


async def test_a_node_with_no_schema_says_what_to_run(sites: MakeSites) -> None:
    (a,) = sites("a")
    a.file.unlink()
    with pytest.raises(DatabaseUnusable, match=f"lacks {int(NEWEST)} migrations") as caught:
        await a.start()
    assert caught.value.hint == "run `routerd-eventd migrate`"
    await a.stop()


async def test_a_group_that_is_left_out_by_name_rests(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    lab = free_port()
    await a.apply(group("a", port=lab, secret=a.secret, name="lab"))
    assert _listeners(a.port)
    assert _listeners(lab)
    await a.stop()
    await a.start(group="lab")
    assert not _listeners(a.port)
    assert _listeners(lab)


async def test_a_fault_in_what_follows_the_declarations_is_shown_and_ends_neither_it_nor_the_node(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = sites("a")
    await a.start()
    apply, faults = a.running.reconciler.apply, ["fault"]

    async def applying() -> None:
        if faults:
            assert a.running.readiness()["database"] == "ok"
            raise KeyError(faults.pop())
        assert a.running.readiness()["database"] == "KeyError in this node; see its log"
        await apply()

    monkeypatch.setattr(a.running.reconciler, "apply", applying)
    port = free_port()
    await a.apply(group("a", port=port, secret=a.secret))
    await until(lambda: _listeners(port), "the group to listen")
    await until(lambda: a.running.readiness()["database"] == "ok")
    assert not a.running.supervisor.failed.done()
    (failed,) = [vars(record) for record in caplog.records if record.name == "eventd.tasks"]
    assert (failed["task"], failed["outcome"], faults) == ("changes", "restarted", [])
    shown = a.running.metrics.render().decode()
    assert 'routerd_eventd_task_failures_total{status="restarted"} 1.0' in shown


async def test_an_idle_node_on_a_full_disk_is_not_ready(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    (node,) = sites("a")
    await node.start()
    assert node.running.readiness()["database"] == "ok"
    monkeypatch.setattr(space, "bytes_left", lambda folder: 4096)
    assert "is full: 4 KiB are left; free some space" in node.running.readiness()["database"]
    monkeypatch.setattr(space, "bytes_left", lambda folder: None)
    assert node.running.readiness()["database"] == "ok"


async def test_a_peer_that_is_down_makes_no_node_unready(sites: MakeSites, caplog: pytest.LogCaptureFixture) -> None:
    """It must not stop a rollout: only what this node itself needs is a check."""
    a, b = sites("a", "b")
    await a.start()
    with caplog.at_level(logging.WARNING, logger="eventd"):
        await a.join(b)

        async def backs_off() -> bool:
            return "link backing off" in caplog.messages

        await until(backs_off, "the link to back off")
    (down,) = [vars(one) for one in caplog.records if one.getMessage() == "link backing off"]
    assert (down["node"], down["group"], down["peer"]) == ("a", "edge", "b")
    assert set(a.running.readiness().values()) == {"ok"}


async def test_a_node_that_stops_is_not_ready_from_the_first_moment(sites: MakeSites) -> None:
    """A load balancer gets to know it while the API still answers."""
    (a,) = sites("a")
    await a.start()
    node = a.running
    assert node.api_address is not None
    async with ClientSession("http://{}:{}".format(*node.api_address)) as session, session.get("/readyz") as answer:
        assert answer.status == 200
    stopping = None
    try:
        async with node.reconciler.at_rest:  # as while it applies resources, which a stop does not interrupt
            stopping = asyncio.ensure_future(node.stop())
            await asyncio.sleep(0)
            async with (
                ClientSession("http://{}:{}".format(*node.api_address)) as session,
                session.get("/readyz?verbose") as answer,
            ):
                assert (answer.status, await answer.text()) == (
                    503,
                    "[-]stopping: the node stops\n[+]database ok\nreadyz failed\n",
                )
    finally:
        if stopping is not None:
            await stopping
