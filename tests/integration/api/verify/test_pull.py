"""A node that was restored from an older copy gets its own events back from a peer. Two nodes over HTTP."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from eventd.api.verify import pulling
from eventd.errors import Conflict, Invalid
from eventd.log.core.head import renew_epoch
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from tests.integration.conftest import MakeSites
from tests.support.answering_peer import Behaviour, says
from tests.support.declared import group, peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.sites import Site

OLD = [f"old-{number}" for number in range(5)]
LOST = [f"lost-{number}" for number in range(40)]


async def _pull(node: Site, **params: Any) -> dict[str, Any]:
    """Pull to the end; return the sums of all answers."""
    total: Counter[str] = Counter()
    left: Counter[str] = Counter()
    answer: dict[str, Any] = {"next": ""}
    while answer["next"] is not None:
        asked = {"group": "edge", "peer": "b", "seconds": 0, "after": answer["next"], **params}
        answer = await node.ask("links.pull", **asked)
        total.update({name: answer[name] for name in ("lacking", "stored", "byReceipt", "unproven")})
        left.update(answer["left"])
    return dict(total) | {"left": {reason: number for reason, number in left.items() if number}}


def _renew(node: Site) -> None:
    """Do what `migrate --new-epoch` does, as after a restore on Postgres."""
    database = Database(node.url)
    try:
        database.write_now(renew_epoch)
    finally:
        database.close()


async def _restored(a: Site, b: Site, *lost: str, batches: int = 1, server: PostgresServer | None = None) -> None:
    """Let `a` send events to `b`, and take it back to a copy from before `lost`, in a new epoch."""
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(peer("b", b.port))
    await a.emit(*OLD)
    await a.caught_up("b")
    if server is not None:
        await a.stop()
        copied = server.create_database(like=a.url)
        await a.start()
    else:
        copy = a.back_up()
    size = -(-len(lost) // batches)
    for start in range(0, len(lost), size):
        await a.emit(*lost[start : start + size])
        await a.caught_up("b")
    await a.stop()
    if server is not None:
        a.url = copied
        _renew(a)
    else:
        a.restore(copy)
    await a.start()


async def _marks(node: Site) -> dict[str, Any]:
    listed = await node.ask("events.list", group="edge", limit=1000)
    return {event["id"]: event["returned"] for event in listed["events"] if "returned" in event}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_events_that_a_receipt_names_come_back_as_own_events(
    sites: MakeSites, kind: str, request: pytest.FixtureRequest
) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres_server") if kind == "postgres" else None
    urls = None if server is None else [server.create_database(), server.create_database()]
    a, b = sites("a", "b", urls=urls)
    await _restored(a, b, *LOST, batches=3, server=server)
    bodies = {record.event_id: record.body for record in await b.stored()}
    assert await _pull(a) == {"lacking": 40, "stored": 40, "byReceipt": 40, "unproven": 0, "left": {}}
    stored = await a.stored()
    assert [record.event_id for record in stored] == OLD + LOST
    assert {record.event_id: record.body for record in stored} == bodies
    assert {record.path for record in stored} == {""}
    assert [record.seq for record in stored] == [*range(1, 46)]
    marks = await _marks(a)
    assert [*marks] == LOST
    assert {(mark["from"], mark["byReceipt"], mark["reason"]) for mark in marks.values()} == {("b", True, "")}
    described = await a.ask("events.describe", group="edge", id="lost-7")
    assert described["event"]["returned"] == marks["lost-7"]


async def test_events_between_records_of_other_topics_are_recognized(sites: MakeSites) -> None:
    """Their positions have gaps: the peer stored them with its receipt."""
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    await a.apply(group("a", port=free_port(), secret=a.secret, name="other"), peer("b", b.port))
    await a.emit(*OLD)
    await a.caught_up("b")
    copy = a.back_up()
    await b.stop()
    for each in LOST:
        await a.emit(each)
        await a.emit(f"other-{each}", group="other")
    await b.start()
    await a.caught_up("b")
    await a.stop()
    a.restore(copy)
    await a.start()
    assert await _pull(a) == {"lacking": 40, "stored": 40, "byReceipt": 40, "unproven": 0, "left": {}}


async def test_the_peer_gets_returned_events_once_more_and_drops_them(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    await _pull(a)
    await a.caught_up("b")
    assert await b.ids() == OLD + LOST
    assert await a.ids() == OLD + LOST
    report = await a.ask("links.verify", group="edge", peer="b", seconds=50)
    assert report["report"]["clean"]
    assert report["report"]["events"]["extra"] == 0


async def test_a_second_pull_stores_nothing(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    await _pull(a)
    assert await _pull(a) == {"lacking": 0, "stored": 0, "byReceipt": 0, "unproven": 0, "left": {}}


async def test_an_interrupted_pull_is_completed_by_the_next(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    monkeypatch.setattr(pulling, "MOST_RETURNED", 7)
    first = await a.ask("links.pull", group="edge", peer="b", seconds=0)
    assert (first["stored"], first["next"] is None) == (7, False)
    await a.stop()
    await a.start()
    assert (await _pull(a))["stored"] == 33
    assert await a.ids() == OLD + LOST


async def test_a_dry_run_counts_and_stores_nothing(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    assert await _pull(a, dryRun=True) == {"lacking": 40, "stored": 40, "byReceipt": 40, "unproven": 0, "left": {}}
    assert await a.ids() == OLD


async def test_events_without_a_receipt_need_consent_and_are_marked(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)

    def forget(conn: Connection) -> None:
        execute(conn, "DELETE FROM inbound_batches")

    await b.running.log.database.write(forget)
    assert await _pull(a) == {"lacking": 40, "stored": 0, "byReceipt": 0, "unproven": 0, "left": {"unproven": 40}}
    answer = await a.ask("links.pull", group="edge", peer="b")
    reason = "the peer has no receipt of its batch any more, or never gave one"
    assert answer["unprovenEvents"][0] == {"id": "lost-0", "reason": reason}
    assert (await _pull(a, acceptUnproven=True))["unproven"] == 40
    assert await a.ids() == OLD + LOST
    marks = await _marks(a)
    assert {(mark["byReceipt"], mark["reason"]) for mark in marks.values()} == {(False, reason)}


async def test_an_event_that_was_changed_at_the_peer_is_not_recognized_nor_is_its_batch(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST, batches=4)

    def change(conn: Connection) -> None:
        [(text, position)] = fetch(conn, "SELECT text, position FROM blocks WHERE text LIKE ?", ('%"lost-3"%',))
        changed = text.replace('"dedupeKey":"lost-3"', '"dedupeKey":"forged"')
        assert changed != text
        execute(conn, "UPDATE blocks SET text = ? WHERE position = ?", (changed, position))

    await b.running.log.database.write(change)
    assert await _pull(a) == {"lacking": 40, "stored": 30, "byReceipt": 30, "unproven": 0, "left": {"unproven": 10}}
    assert "lost-3" not in await a.ids()


async def test_events_of_the_peer_and_of_other_sources_are_not_pulled(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    await b.emit("of-b")
    await a.emit("sensor", sourceNode="sensor-1")
    await a.caught_up("b")

    def lose(conn: Connection) -> None:
        execute(conn, "DELETE FROM event_ids WHERE event_id = 'sensor'")

    await a.running.log.database.write(lose)
    assert (await _pull(a))["left"] == {"notReturned": 1}
    assert "of-b" not in await a.ids()


async def test_a_listing_of_returned_events_can_be_emitted_elsewhere(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    await _pull(a)
    (listed,) = (await a.ask("events.list", group="edge", id="lost-3"))["events"]
    (c,) = sites("c")
    await c.start()
    await c.join()
    assert (await c.ask("events.emit", group="edge", events=[listed]))["counts"]["new"] == 1


async def test_a_log_without_a_new_epoch_is_refused(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    mark = (await b.rows("SELECT epoch FROM inbound_links"))[0][0]

    def put_back(conn: Connection) -> None:
        execute(conn, "UPDATE log_heads SET epoch = ?", (mark,))

    await a.running.log.database.write(put_back)
    with pytest.raises(Conflict, match="begin a new epoch first"):
        await _pull(a)
    assert await a.ids() == OLD


def _older(question: dict[str, Any]) -> Any:
    known = {
        "state": {"history": "h", "upto": 9, "mark": None},
        "ids": {"events": [["e1", "0" * 16]], "next": None},
        "events": {"error": {"code": "malformed", "message": "the question cannot be read: Invalid value 'events'"}},
    }
    return known[question["ask"]]


def _status_of_older(question: dict[str, Any]) -> int:
    return 400 if question["ask"] == "events" else 200


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (lambda heard: FixedResponse(404), "the peer answers 404"),
        (
            says(_older, status_of=lambda question: 400 if question["ask"] == "events" else 200),
            "does not know the question",
        ),
    ],
    ids=["without questions", "without this question"],
)
async def test_a_peer_of_an_older_version_is_named(sites: MakeSites, behave: Behaviour, message: str) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    with FlakyPeer(free_port(), behave) as older:
        await a.apply(peer("b", older.port))
        with pytest.raises(Conflict, match=f"b cannot return events: .*{message}"):
            await _pull(a)


async def test_a_position_that_no_answer_gave_is_refused(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await _restored(a, b, *LOST)
    for after in (
        *("nonsense", "h:1:2:3", "h:1:2:3:-4", ":1:2:3:4", "h:1:2:3:²", "\x1b:1:2:3:4", "x:y:1:2:3:4"),
        *(f"h:{10**15}:0:0:0", f"h:1:2:3:{'9' * 5000}", f"{'h' * 513}:1:0:0:0"),
    ):
        with pytest.raises(Invalid, match="is not the `next` of an earlier call"):
            await a.ask("links.pull", group="edge", peer="b", after=after)
