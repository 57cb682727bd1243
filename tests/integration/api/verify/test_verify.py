"""Verifying a peer: two nodes over HTTP, and the events that the peer lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.api.keys.api_key import ANYONE
from eventd.api.verify import operations
from eventd.api.verify.asking import find_group_and_peer
from eventd.errors import Conflict, NotFound, Unavailable
from eventd.log.delivery.digests import STEP_RECORDS
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import execute, fetch
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import PLAIN_GROUP, group, peer
from tests.support.flaky_peer import Disconnect, FixedResponse, FlakyPeer, Forward
from tests.support.operations import run as run_operation
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.sites import Site


async def _report(node: Site, of: str = "b") -> dict[str, Any]:
    told = await node.ask("links.verify", group="edge", peer=of, seconds=0)
    while not told["done"]:
        assert told["report"] is None
        told = await node.ask("links.verify", group="edge", peer=of, run=told["run"], seconds=0)
    report: dict[str, Any] = told["report"]
    return report


async def _events(node: Site, of: str = "b") -> dict[str, Any]:
    """What the report of a comparison says of the events."""
    found: dict[str, Any] = (await _report(node, of))["events"]
    return found


def _missing(events: dict[str, Any]) -> list[str]:
    return [event_id for gap in events["gaps"] for event_id in gap["ids"]]


async def _one_way(sites: MakeSites, **spec: Any) -> tuple[Site, Site]:
    """`a` sends to `b`, and `b` to no peer: so `b` queries no peer for a position at its start."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join(**PLAIN_GROUP)
    await a.apply(peer("b", b.port, **spec))
    return a, b


async def _send(a: Site, *ids: str, **fields: Any) -> None:
    await a.emit(*ids, **fields)
    await a.caught_up("b")


async def _restore(b: Site, copy: Any) -> None:
    await b.stop()
    b.restore(copy)
    await b.start()


async def _forget(b: Site, *ids: str) -> None:
    """Take single records out of the database behind the node's back, as damage would."""

    def remove(conn: Any) -> None:
        for each in ids:
            where = "position = (SELECT position FROM event_ids WHERE event_id = ?)"
            assert execute(conn, f"DELETE FROM blocks WHERE records = 1 AND {where}", (each,)) == 1
            execute(conn, "DELETE FROM event_ids WHERE event_id = ?", (each,))

    await b.running.log.database.write(remove)


async def _rewrite(node: Site, event_id: str, change: Callable[[str], str]) -> None:
    """Change the text of the block that holds an event behind the node's back."""

    def write(conn: Any) -> None:
        where = (
            "position = (SELECT max(position) FROM blocks WHERE position <="
            " (SELECT position FROM event_ids WHERE event_id = ?))"
        )
        [(text,)] = fetch(conn, f"SELECT text FROM blocks WHERE {where}", (event_id,))
        assert execute(conn, f"UPDATE blocks SET text = ? WHERE {where}", (change(text), event_id)) == 1

    await node.running.log.database.write(write)


async def _damage(node: Site, *ids: str) -> None:
    """Take records out of the database behind the node's back and leave their ids, as a hand in the tables would."""

    def remove(conn: Any) -> None:
        for each in ids:
            where = "position = (SELECT position FROM event_ids WHERE event_id = ?)"
            assert execute(conn, f"DELETE FROM blocks WHERE records = 1 AND {where}", (each,)) == 1

    await node.running.log.database.write(remove)


async def test_two_nodes_that_hold_the_same_are_clean(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    ids = [f"e{number:04}" for number in range(2 * STEP_RECORDS)]
    for start in range(0, len(ids), 100):
        await a.emit(*ids[start : start + 100])
    await b.emit("of b")
    await a.caught_up("b")
    report = await _report(a)
    assert report["clean"]
    assert report["compared"]
    assert report["events"] == {
        "compared": len(ids),
        "missing": 0,
        "gaps": [],
        "untold": 0,
        "extra": 0,
        "extraIds": [],
        "other": 0,
        "otherIds": [],
        "unresolved": 0,
        "pending": 0,
        "setAside": {},
    }
    link = report["link"]
    assert link["mark"]["epoch"] == link["epoch"]
    assert (link["mark"]["upto"], link["confirmed"], link["notes"]) == (link["position"], link["position"], [])


async def test_a_restored_receiver_is_found_event_by_event_and_mended(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, *[f"old{number:03}" for number in range(50)])
    copy = b.back_up()
    lost = [f"new{number:03}" for number in range(70)]
    await _send(a, *lost)
    await _restore(b, copy)
    report = await _report(a)
    assert not report["clean"]
    assert _missing(report["events"]) == lost
    [gap] = report["events"]["gaps"]
    assert (gap["fromSeq"], gap["toSeq"], gap["events"]) == (51, 120, 70)
    assert (gap["fromPosition"], gap["toPosition"]) == (51, 120)
    assert report["link"]["notes"] == [
        "b is at position 50, but had confirmed everything up to 120: it has lost records"
    ]
    await a.ask("deliveries.redeliver", group="edge", peer="b", fromSeq=51, toSeq=120)
    await b.holds(*lost)
    await a.caught_up("b")
    assert (await _report(a))["clean"]


async def test_single_losses_in_between_are_named_each_with_its_place(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    for number in range(10):
        await _send(a, f"e{number:02}")
    await _forget(b, "e03", "e04", "e07")
    events = await _events(a)
    assert events["missing"] == 3
    assert [(gap["fromSeq"], gap["toSeq"], gap["ids"]) for gap in events["gaps"]] == [
        (4, 5, ["e03", "e04"]),
        (8, 8, ["e07"]),
    ]


async def test_a_gap_goes_on_over_events_that_are_not_meant_for_the_peer(sites: MakeSites) -> None:
    a, b = await _one_way(sites, types=["t"])
    await _send(a, "kept")
    copy = b.back_up()
    await _send(a, "one")
    await a.emit("other", type="u")
    await _send(a, "two")
    await _restore(b, copy)
    [gap] = (await _events(a))["gaps"]
    assert (gap["fromSeq"], gap["toSeq"], gap["events"], gap["ids"]) == (2, 4, 2, ["one", "two"])


async def test_what_is_on_its_way_is_pending_and_no_loss(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e1", "e2")
    with FlakyPeer(
        free_port(), lambda heard: FixedResponse(503) if heard.path == "/v2/events" else Forward(), b.port
    ) as between:
        await a.apply(peer("b", between.port))
        await a.emit("e3", "e4")
        await a.in_state("b", "backing-off")
        report = await _report(a)
    assert report["clean"]
    assert (report["events"]["compared"], report["events"]["pending"]) == (2, 2)
    assert (report["link"]["position"], report["link"]["head"]) == (2, 4)


async def test_what_arrived_and_whose_receipt_was_lost_is_compared_as_well(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e1", "e2")
    with FlakyPeer(
        free_port(), lambda heard: Disconnect(after=True) if heard.path == "/v2/events" else Forward(), b.port
    ) as between:
        await a.apply(peer("b", between.port))
        await a.emit("e3", "e4")
        await b.holds("e3", "e4")
        report = await _report(a)
    assert report["clean"]
    assert report["events"]["compared"] == 4
    assert report["link"]["position"] == 2


async def test_what_expired_or_was_refused_is_set_aside(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await b.emit("taken", type="of b")
    await _send(a, "e1")
    await a.ask("links.pause", group="edge", peer="b", by="test")
    await a.emit("late", expiresAt="2020-01-01T00:00:00Z", observedAt="2019-01-01T00:00:00Z")
    await a.emit("taken")
    await a.emit("e2")
    await a.ask("links.resume", group="edge", peer="b")
    await a.caught_up("b")
    report = await _report(a)
    assert report["clean"], report
    assert report["events"]["setAside"] == {"expired": 1, "refused": 1}


async def test_a_lost_event_whose_time_is_over_is_of_no_use_any_more(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e1")
    copy = b.back_up()
    await _send(a, "brief", ttl="1s")
    ends = a.clock.now() + SECOND
    await _restore(b, copy)
    await until(lambda: a.clock.now() > ends, "the event to expire")

    report = await _report(a)
    assert (report["events"]["setAside"], report["clean"]) == ({"expired": 1}, True)


async def test_a_restored_sender_learns_what_the_peer_has_beyond_its_log(sites: MakeSites) -> None:
    a, _b = await _one_way(sites)
    await _send(a, "e1", "e2")
    copy = a.back_up()
    await _send(a, "lost1", "lost2")
    await _restore(a, copy)
    report = await _report(a)
    assert not report["clean"]
    assert (report["events"]["extra"], report["events"]["extraIds"]) == (2, ["lost1", "lost2"])
    assert report["events"]["missing"] == 0


async def test_a_refresh_that_is_missing_is_found(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e1", expiresAt="2099-01-01T00:00:00Z", observedAt="2026-01-01T00:00:00Z")
    copy = b.back_up()
    await _send(a, "e1", expiresAt="2099-06-01T00:00:00Z", observedAt="2026-01-01T00:00:00Z")
    await _restore(b, copy)
    report = await _report(a)
    assert _missing(report["events"]) == ["e1"]
    assert report["events"]["gaps"][0]["fromSeq"] == 2
    await a.ask("deliveries.redeliver", group="edge", peer="b", ids=["e1"])
    await a.caught_up("b")

    async def clean() -> bool:
        return bool((await _report(a))["clean"])

    await until(clean, "the refresh to be there")


async def test_another_event_under_our_id_is_named(sites: MakeSites) -> None:
    """The peer lost our event and took another under its id: both know the id, and the events differ."""
    a, b = await _one_way(sites)
    await _send(a, "e1")
    copy = b.back_up()
    await _send(a, "same")
    await _restore(b, copy)
    await b.emit("same", type="of b")
    report = await _report(a)
    assert (report["events"]["other"], report["events"]["otherIds"], report["clean"]) == (1, ["same"], False)


async def test_what_the_peers_retention_has_removed_is_no_loss(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    for number in range(8):
        await _send(a, f"e{number:02}")
    await b.join(retention={"maxEvents": 5})
    while (await b.ask("events.prune", group="edge"))["removed"]:
        pass
    report = await _report(a)
    assert report["clean"], report
    assert report["link"]["peerKeepsSince"]
    assert report["events"]["compared"] + report["link"]["removedByPeer"] == 8


async def test_what_our_retention_has_removed_is_no_contradiction(sites: MakeSites) -> None:
    a, _b = await _one_way(sites)
    for number in range(8):
        await _send(a, f"e{number:02}")
    await a.apply(group("a", port=a.port, secret=a.secret, **PLAIN_GROUP, retention={"maxEvents": 5}))
    while (await a.ask("events.prune", group="edge"))["removed"]:
        pass
    report = await _report(a)
    assert report["clean"], report
    assert report["events"]["compared"] == 5


async def test_relayed_events_are_compared_where_the_peer_gets_them(sites: MakeSites) -> None:
    a, hub, b = sites("a", "hub", "b")
    for node in (a, hub, b):
        await node.start()
        await node.join()
    await a.apply(peer("hub", hub.port))
    await hub.apply(peer("b", b.port, relay=True))
    for number in range(4):
        await a.emit(f"a{number}")
        await b.holds(f"a{number}")
        await hub.emit(f"h{number}")
    await b.holds(*[f"{name}{number}" for name in "ah" for number in range(4)])
    await hub.caught_up("b")
    report = await _report(hub, "b")
    assert (report["clean"], report["events"]["compared"]) == (True, 8)
    await _forget(b, "a3")
    assert _missing(await _events(hub, "b")) == ["a3"]


async def test_what_a_peer_has_by_another_path_is_no_difference(sites: MakeSites) -> None:
    """In a triangle of relays each event arrives twice, and the peer keeps the path of the first."""
    nodes = a, b, c = sites("a", "b", "c")
    for node in nodes:
        await node.start()
        await node.join()
    for node in nodes:
        await node.apply(*[peer(other.name, other.port, relay=True) for other in nodes if other is not node])
    for number in range(4):
        for node in nodes:
            await node.emit(f"{node.name}{number}")
            await c.holds(f"{node.name}{number}")  # before the next one: each is a block of its own
    for node in nodes:
        await node.holds(*[f"{name}{number}" for name in "abc" for number in range(4)])
        for other in nodes:
            if other is not node:
                await node.caught_up(other.name)
    links = [(node, other.name) for node in nodes for other in nodes if node is not other]
    reports = [await _report(*link) for link in links]
    assert [report for report in reports if not report["clean"]] == []
    assert sum(report["events"]["setAside"].get("by_another_path", 0) for report in reports) > 0
    await _forget(c, "a3")
    assert [_missing(await _events(node, "c")) for node in (a, b)] == [["a3"], ["a3"]]


async def test_a_peer_of_v1_or_of_an_older_program_cannot_be_asked_and_that_is_said(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    with FlakyPeer(free_port()) as older:
        older.behave = lambda heard: FixedResponse(404)
        await a.join()
        await a.apply(peer("b", older.port), peer("c", older.port, protocol="v1"))
        report = await _report(a)
        assert (report["compared"], report["clean"]) == (False, False)
        assert report["why"] == "the peer answers 404 to the query: its program is too old for it, or a proxy answers"
        report = await _report(a, "c")
        assert report["why"] == "the peer is declared with v1, which cannot be verified"


async def test_a_peer_that_is_down_or_unknown_is_an_error(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    await a.apply(peer("b", free_port()))
    with pytest.raises(Unavailable, match="b cannot be queried: cannot connect"):
        await _report(a)
    with pytest.raises(NotFound, match="group edge has no peer bb"):
        await _report(a, "bb")


async def test_one_run_for_a_peer_at_a_time(sites: MakeSites) -> None:
    a, _b = await _one_way(sites)
    await _send(a, "e1")
    told = await a.ask("links.verify", group="edge", peer="b", seconds=0)
    with pytest.raises(Conflict, match="b is being verified"):
        await a.ask("links.verify", group="edge", peer="b", seconds=0)
    with pytest.raises(NotFound, match="no run nonsense exists"):
        await a.ask("links.verify", group="edge", peer="b", run="nonsense")
    while not told["done"]:
        told = await a.ask("links.verify", group="edge", peer="b", run=told["run"], seconds=0)
    assert told["report"]["clean"]


async def test_a_comparison_in_the_background_ends_within_its_time_and_keeps_why(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _b = await _one_way(sites)
    await _send(a, "e1")
    services = replace(Services(a.running.log), spawn=a.running.supervisor.spawn)
    begin = partial(run_operation, services, "links.verify", group="edge", peer="b", background=True)
    told = await begin(seconds=20)
    assert (told["done"], told["report"]["clean"]) == (True, True)
    monkeypatch.setattr(operations, "BACKGROUND_SECONDS", 0.0)
    told = await begin(seconds=20)
    assert (told["done"], told["report"]["compared"]) == (True, False)
    found = (await a.ask("links.verifications", group="edge"))["verifications"]
    assert [one["result"] for one in found] == ["not-compared", "clean"]
    assert "use routerctl verify" in found[0]["why"]
    monkeypatch.setattr(operations, "MOST_IN_BACKGROUND", 0)
    with pytest.raises(Conflict, match="in the background already"):
        await begin(seconds=0)


async def _endless(*_: Any) -> None:
    await asyncio.sleep(0.01)


async def test_a_group_has_one_comparison_in_the_background_also_when_a_call_continues_it(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _b = await _one_way(sites)
    await a.apply(peer("c", free_port()))
    monkeypatch.setattr(operations, "_continue", _endless)
    services = replace(Services(a.running.log), spawn=a.running.supervisor.spawn)
    verify = partial(run_operation, services, "links.verify", group="edge", seconds=0)
    await verify(peer="b", background=True)
    begun = await verify(peer="c")
    with pytest.raises(Conflict, match="a comparison of the group edge works in the background already"):
        await verify(peer="c", run=begun["run"], background=True)


@pytest.mark.parametrize("how", ["deleted", "changed", "key"])
async def test_a_comparison_in_the_background_ends_with_its_peer_and_with_its_key(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    a, _b = await _one_way(sites)
    monkeypatch.setattr(operations, "_continue", _endless)
    valid = {b"digest"}
    services = replace(
        Services(a.running.log),
        spawn=a.running.supervisor.spawn,
        key=ANYONE._replace(digest=b"digest"),
        holds_key=valid.__contains__,
    )
    await run_operation(services, "links.verify", group="edge", peer="b", seconds=0, background=True)
    if how == "deleted":
        await a.ask("resources.delete", kind="EventPeer", name="edge-b")
    elif how == "changed":
        await a.apply(peer("b", free_port()))
    else:
        valid.clear()
    why = {"deleted": "has no peer b", "changed": "declared differently", "key": "the key that began it"}[how]

    async def ended() -> bool:
        found = (await a.ask("links.verifications", group="edge"))["verifications"]
        return [why in one["why"] for one in found] == [True]

    await until(ended)
    assert not operations._runs[a.running.log.database]


async def test_the_end_of_an_abandoned_comparison_leaves_the_one_that_replaced_it(sites: MakeSites) -> None:
    a, _b = await _one_way(sites)
    database = a.running.log.database
    found = await database.read(find_group_and_peer, "edge", "b")
    request = operations._VerifyRequest(
        Services(a.running.log), operations.Verify(group="edge", peer="b"), b"", "", *found
    )
    abandoned = operations._run_of(request)
    abandoned.touched -= operations.FORGOTTEN_SECONDS
    newer = operations._run_of(request)
    await request.end(abandoned, "the peer did not answer")
    assert operations._runs[database] == {("edge", "b"): newer}


async def test_a_look_at_a_comparison_waits_two_seconds_for_a_process_that_hangs(sites: MakeSites) -> None:
    a, _b = await _one_way(sites)
    patience = []

    async def hang(group: str, name: str, question: bytes, *, seconds: float) -> bytes | None:
        patience.append(seconds)
        return None

    services = replace(Services(a.running.log), ask_worker=hang)
    with pytest.raises(Unavailable, match="within 2 s; the comparison continues there"):
        await run_operation(services, "links.verify", group="edge", peer="b", run="r", look=True)
    assert patience == [2.0]


async def test_what_goes_on_meanwhile_is_no_difference(sites: MakeSites) -> None:
    """New events arrive at both ends while a comparison is under way."""
    a, _b = await _one_way(sites)
    await _send(a, *[f"e{number:03}" for number in range(500)])
    told = await a.ask("links.verify", group="edge", peer="b", seconds=0)
    number = 0
    while not told["done"]:
        await a.emit(*[f"more{number}-{each}" for each in range(20)])
        number += 1
        told = await a.ask("links.verify", group="edge", peer="b", run=told["run"], seconds=0)
    assert told["report"]["clean"], told


async def _send_one_by_one(a: Site, *ids: str) -> None:
    for each in ids:
        await a.emit(each)  # a block of its own: so single records can be taken out
        await a.caught_up("b")


async def test_records_that_are_gone_at_the_peer_are_missing_though_it_remembers_their_ids(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send_one_by_one(a, *[f"e{number}" for number in range(8)])
    await _damage(b, "e2", "e3", "e7")
    events = await _events(a)
    assert _missing(events) == ["e2", "e3", "e7"]
    assert (events["missing"], events["other"], events["unresolved"]) == (3, 0, 0)
    await a.ask("deliveries.redeliver", group="edge", peer="b", ids=["e2", "e3", "e7"])
    await b.holds("e2", "e3", "e7")
    await a.caught_up("b")
    assert (await _report(a))["clean"], "a repair brings them back"
    await a.ask("deliveries.redeliver", group="edge", peer="b", ids=["e1", "e2", "e3"])
    await a.caught_up("b")
    assert (await _report(a))["clean"], "once each"


async def test_what_is_gone_from_our_own_log_is_what_the_peer_holds_beyond_it(sites: MakeSites) -> None:
    a, _ = await _one_way(sites)
    await _send_one_by_one(a, "e1", "e2", "e3")
    await _damage(a, "e2")
    events = await _events(a)
    assert (events["extra"], events["extraIds"], events["missing"]) == (1, ["e2"], 0)


async def _repair(a: Site, *ids: str) -> None:
    """Have `a` send these events again, and wait until `b` has answered."""
    await a.ask("deliveries.redeliver", group="edge", peer="b", ids=list(ids))
    await a.caught_up("b")


async def _each_way(a: Site, b: Site) -> None:
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port))
    await b.apply(peer("a", a.port))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_deleted_blocks_of_many_events_are_reported_and_repaired_at_both_nodes(
    sites: MakeSites, kind: str, request: pytest.FixtureRequest
) -> None:
    """401 events are gone at one node and 5 at the other; the ids of all of them are still in the tables."""
    urls = None
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        urls = [server.create_database(), server.create_database()]
    a, b = sites("a", "b", urls=urls)
    await _each_way(a, b)
    of_a = [[f"a{start + number:04}" for number in range(401)] for start in (0, 1000, 2000)]
    of_b = [[f"b{start + number:04}" for number in range(5)] for start in (0, 10, 20)]
    for ids in of_a:
        await _send(a, *ids)
    for ids in of_b:
        await b.emit(*ids)
        await b.caught_up("a")

    def remove(first: str) -> Callable[[Any], int]:
        sql = "DELETE FROM blocks WHERE position = (SELECT position FROM event_ids WHERE event_id = ?)"
        return lambda conn: execute(conn, sql, (first,))

    assert await b.running.log.database.write(remove(of_a[1][0])) == 1
    assert await a.running.log.database.write(remove(of_b[0][0])) == 1
    for sender, receiver, lost in ((a, b, of_a[1]), (b, a, of_b[0])):
        events = await _events(sender, receiver.name)
        assert (_missing(events), events["missing"], len(events["gaps"])) == (lost, len(lost), 1)
        assert (events["extra"], events["other"], events["unresolved"]) == (0, 0, 0)
        await sender.ask("deliveries.redeliver", group="edge", peer=receiver.name, ids=lost)
        await sender.caught_up(receiver.name)
        assert set(lost) <= set(await receiver.ids())
        assert (await _report(sender, receiver.name))["clean"]


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda text: "", ["e0", "e1", "e2"]),
        (lambda text: text.replace('{"id":"e1"', '{"id":"e1'), ["e1"]),
        (lambda text: text.replace('"type":"t"', '"type":t', 1), ["e0"]),
        (lambda text: text.replace('"observedAt":"2', '"observedAt":"x'), ["e0", "e1", "e2"]),
        (lambda text: text[: text.index('{"id":"e2"') + 40], ["e2"]),
    ],
    ids=["no text", "an id", "a value", "the times", "the end"],
)
async def test_records_with_damaged_bytes_are_missing_and_a_repair_brings_them_back(
    sites: MakeSites, change: Callable[[str], str], lost: list[str]
) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e0", "e1", "e2")
    await _send(a, "e3")
    await _rewrite(b, "e0", change)
    events = await _events(a)
    assert (_missing(events), events["extra"], events["other"], events["unresolved"]) == (lost, 0, 0, 0)
    await _repair(a, *lost)
    assert (await _report(a))["clean"]
    await _repair(a, "e0", "e1", "e2", "e3")
    rows = await b.rows("SELECT sum(records) FROM blocks")
    assert rows == [(4 + len(lost),)], "each lost one was stored once more"


async def test_a_record_that_became_another_event_is_missing_under_its_own_id(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e0", "e1")
    await _rewrite(b, "e0", lambda text: text.replace('"e1"', '"x1"'))
    events = await _events(a)
    assert (_missing(events), events["extraIds"], events["other"]) == (["e1"], ["x1"], 0)
    await _repair(a, "e1")
    assert (await _events(a))["missing"] == 0


async def test_a_damaged_record_of_our_own_does_not_stop_the_comparison(sites: MakeSites) -> None:
    a, _b = await _one_way(sites)
    await _send(a, "e0", "e1", "e2")
    await _rewrite(a, "e1", lambda text: text.replace('{"id":"e1"', '{"id":"e1'))
    events = await _events(a)
    assert (events["compared"], events["extraIds"], events["missing"]) == (2, ["e1"], 0)


async def test_retention_does_not_hide_that_the_oldest_records_are_gone(sites: MakeSites) -> None:
    """The peer keeps five events; of these, the first three are deleted by hand."""
    a, b = await _one_way(sites)
    await _send_one_by_one(a, *[f"e{number}" for number in range(8)])
    await b.join(retention={"maxEvents": 5})
    while (await b.ask("events.prune", group="edge"))["removed"]:
        pass
    kept = await b.ids()
    assert len(kept) == 5
    await _damage(b, *kept[:3])
    events = await _events(a)
    assert (_missing(events), events["setAside"]) == (kept[:3], {"held_once": 3})
    await _damage(b, *kept[3:])
    assert _missing(await _events(a)) == kept, "also when nothing is left"
    await _repair(a, *kept)
    assert (await _events(a))["missing"] == 0


async def test_results_are_kept_newest_first(sites: MakeSites) -> None:
    a, b = await _one_way(sites)
    await _send(a, "e1")
    await _send(a, "e2")
    await _report(a)
    await _forget(b, "e2")
    await _report(a)
    await a.apply(peer("old", free_port(), protocol="v1"))
    await _report(a, "old")
    found = (await a.ask("links.verifications", group="edge"))["verifications"]
    assert [(one["peer"], one["result"], one["compared"], one["missing"]) for one in found] == [
        ("old", "not-compared", 0, 0),
        ("b", "differs", 2, 1),
        ("b", "clean", 2, 0),
    ]
    assert "cannot be verified" in found[0]["why"]
    assert len((await a.ask("links.verifications", group="edge", peer="b", limit=1))["verifications"]) == 1
    assert (await b.ask("links.verifications", group="edge"))["verifications"] == []
