"""An id that another source has taken: freed by the proof of the true event, and by nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventd.errors import CheckFailed, Conflict, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.freed_ids import free_id
from eventd.log.core.values import Draft, Outcome
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.keys import LOG
from eventd.log.witnesses.offers import OfferFrom
from eventd.testing import NOW, ManualClock, draft
from federation.digest import digest
from federation.history.entries import OpeningReason
from federation.history.witnessing import KeySource
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger
from tests.support.growing_tree import SECOND, GrowingTree
from tests.support.histories import signed, start

PINNED = f"history: {{mode: record, keys: [{{node: a, logKey: {GrowingTree().signer.key.text()}}}]}}"
TRUE = draft("e1", node="a")
SQUATTER = draft("e1", node="evil")


def proof_of(event: Draft, *, tree: GrowingTree | None = None, with_event: bool = True) -> dict[str, Any]:
    """The proof file of node `a` that it admitted an event."""
    file = (tree or GrowingTree()).grow("before").prove(event.body)
    found: dict[str, Any] = json.loads((file if with_event else replace(file, event=None)).encode())
    return found


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """A group that has pinned the key of node `a`, and in which the squatter's event came first."""
    found = GroupLedger(log, clock)
    await found.declare(spec=PINNED)
    await log.append(await log.topic("group:g"), [SQUATTER])
    return found


async def release(books: GroupLedger, proof: dict[str, Any], id: str = "e1") -> Any:
    return await books.call("events.release", group="g", id=id, proof=proof)


async def outcome(books: GroupLedger, *events: Draft) -> list[Outcome]:
    return list((await books.log.append(await books.log.topic("group:g"), events)).outcomes)


@on_sqlite
async def test_the_true_event_gets_in_and_the_record_of_the_other_stays(books: GroupLedger) -> None:
    assert await outcome(books, TRUE) == [Outcome.CONFLICT]
    answer = await release(books, proof_of(TRUE))
    assert answer["holder"] == {
        "stored": True,
        "position": 1,
        "sourceNode": "evil",
        "digest": digest(SQUATTER.body.encode()).hex(),
        "recordedAt": answer["holder"]["recordedAt"],
    }
    assert (answer["proven"]["node"], answer["proven"]["sourceNode"], answer["proven"]["leaf"]) == ("a", "a", 2)
    assert answer["proven"]["digest"] == digest(TRUE.body.encode()).hex()
    assert await outcome(books, TRUE, SQUATTER) == [Outcome.NEW, Outcome.CONFLICT]
    for which, sources in (({}, ["a"]), ({"id": "e1"}, ["evil", "a"])):
        stored = (await books.call("events.list", group="g", include_expired=True, **which))["events"]
        assert [one["sourceNode"] for one in stored] == sources
    with pytest.raises(Conflict, match="is that of the proven event itself in group g"):
        await release(books, proof_of(TRUE))


@on_sqlite
async def test_the_released_record_is_marked_and_proven_by_its_position(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare("b", spec=PINNED)
    topic, _ = await start(log)
    await outcome(books, SQUATTER)
    await release(books, proof_of(TRUE))
    mark = {"kind": "released", "tree": str(GrowingTree().origin), "leaf": 2, "at": "2026-11-20T12:00:00Z"}
    assert (await books.call("events.describe", group="g", id="e1"))["event"]["mark"] == mark
    with pytest.raises(NotFound, match=r"no event has the id e1 in group g; other records .*: position 1") as unknown:
        await books.call("history.prove", group="g", id="e1")
    assert "--position" in unknown.value.hint
    assert await outcome(books, TRUE) == [Outcome.NEW]
    await signed(log, topic)
    latest = await books.call("history.prove", group="g", id="e1")
    assert (latest["position"], latest["leaf"], latest["others"]) == (2, 2, [1])
    squatted = await books.call("history.prove", group="g", id="e1", position=1)
    assert (squatted["leaf"], squatted["digest"]) == (1, digest(SQUATTER.body.encode()).hex())
    listed = (await books.call("events.list", group="g", id="e1", include_expired=True))["events"]
    assert [(one["sourceNode"], one.get("mark")) for one in listed] == [("evil", mark), ("a", None)]
    [delivery] = (await books.call("deliveries.list", group="g", event_id="e1"))["deliveries"]
    assert delivery["seq"] == 2, "what waits for the delivery of the event does not wait for the other record"
    with pytest.raises(NotFound, match="no record of event e1 at position 3"):
        await books.call("history.prove", group="g", id="e1", position=3)


async def test_all_records_of_the_event_that_had_the_id_are_marked(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec=PINNED)
    for hours in (1, 2, 3):
        await outcome(books, draft("e1", node="evil", expires=NOW + hours))
    await release(books, proof_of(TRUE))
    assert (await books.call("events.list", group="g"))["events"] == []
    marked = (await books.call("events.list", group="g", id="e1"))["events"]
    assert [one["mark"]["leaf"] for one in marked] == [2, 2, 2]
    assert await outcome(books, TRUE) == [Outcome.NEW]
    shown = await books.call("events.describe", group="g", id="e1")
    assert [one["position"] for one in shown["others"]] == [3, 2, 1]


@on_sqlite
async def test_a_release_is_no_refutation_where_both_events_entered_at_the_same_node(
    log: EventLog, clock: ManualClock
) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec=PINNED.replace("record", "verify"))
    await outcome(books, draft("e1", node="evil", path="a,hub"))
    await release(books, proof_of(TRUE))
    shown = (await books.call("events.describe", group="g", id="e1"))["event"]
    assert (shown["mark"]["kind"], shown["history"]) == ("released", "unproven")


@on_sqlite
async def test_an_id_of_the_same_source_stays(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec=PINNED)
    await outcome(books, TRUE)
    with pytest.raises(Conflict, match="another event of a, its source"):
        await release(books, proof_of(draft("e1", node="a", subject="other")))
    later = draft("e1", node="a", observed=NOW + 1)
    with pytest.raises(Conflict, match="the proven event itself"):
        await release(books, proof_of(later))


@on_sqlite
async def test_an_unknown_id_is_free(books: GroupLedger) -> None:
    with pytest.raises(NotFound, match="the id e2 is free in group g"):
        await release(books, proof_of(draft("e2", node="a")), "e2")


@on_sqlite
async def test_a_file_of_another_event_or_of_a_digest_alone_names_no_id(books: GroupLedger) -> None:
    with pytest.raises(Invalid, match="proves the event e2, and not e1"):
        await release(books, proof_of(draft("e2", node="a")))
    with pytest.raises(Invalid, match="only the digest of an event"):
        await release(books, proof_of(TRUE, with_event=False))


@pytest.mark.parametrize(
    ("proof", "reason"),
    [
        ({}, "it does not name its format"),
        (proof_of(TRUE) | {"event": SQUATTER.body}, "leads to root"),
        (proof_of(TRUE, tree=GrowingTree(key=SECOND)), "is not signed|without|signature|signed"),
        (proof_of(TRUE) | {"proof": "c2sp.org/tlog-proof@v1\nindex 2\n\n"}, "note"),
    ],
    ids=["no-file", "other-event", "other-key", "no-note"],
)
@on_sqlite
async def test_a_file_that_does_not_prove_releases_nothing(
    books: GroupLedger, proof: dict[str, Any], reason: str
) -> None:
    with pytest.raises(CheckFailed, match=f"proves nothing: .*({reason})"):
        await release(books, proof)
    assert await outcome(books, TRUE) == [Outcome.CONFLICT]


@on_sqlite
async def test_a_key_that_others_could_have_shown_proves_nothing(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec="history: {mode: record}")
    await outcome(books, SQUATTER)
    with pytest.raises(CheckFailed, match="the key of the node a is unknown here"):
        await release(books, proof_of(TRUE))
    await learn(books, KeySource.SHARED)
    with pytest.raises(CheckFailed, match="known only from a message that others could have signed") as refused:
        await release(books, proof_of(TRUE))
    assert "history.keys of the EventGroup" in refused.value.hint
    await learn(books, KeySource.OWNED)
    assert (await release(books, proof_of(TRUE)))["holder"]["sourceNode"] == "evil"


async def learn(books: GroupLedger, source: KeySource) -> None:
    """Have the node witness a tree of `a`, which shows the key of this tree."""
    tree = GrowingTree("u" if source is KeySource.OWNED else "v")
    offered = OfferFrom(await books.log.topic("group:g"), "g", "a", source, {}, ("a",), tree.offer())
    decided = await books.log.database.write(decide, offered, NOW)
    assert decided.error is None


async def witness(books: GroupLedger, tree: GrowingTree, old: int = 0) -> None:
    """Witness a tree of `a`, of which `old` leaves are witnessed, with the key that is pinned or its successor."""
    pins = {("a", LOG): GrowingTree().signer.key.public}
    topic = await books.log.topic("group:g")
    offered = OfferFrom(topic, "g", "a", KeySource.SHARED, pins, ("a",), tree.offer(old))
    assert (await books.log.database.write(decide, offered, NOW)).error is None


@on_sqlite
async def test_a_tree_from_before_a_rotation_proves_what_was_witnessed_of_it(books: GroupLedger) -> None:
    tree = GrowingTree().grow("before")
    early = json.loads(tree.prove(TRUE.body).encode())
    forged = json.loads(GrowingTree().grow("x").prove(TRUE.body).encode())
    await witness(books, tree.grow("after"))
    await witness(books, GrowingTree("u", SECOND, OpeningReason.KEY, tree.previous_at(), tree.signer))
    last = json.loads(tree.prove_leaf(TRUE.body, 2).encode())
    for unknown in (early, forged):
        with pytest.raises(
            CheckFailed, match="signed with an earlier key of a, and the checkpoint of size 3"
        ) as refused:
            await release(books, unknown)
        assert "--size 4" in refused.value.hint
    assert (await release(books, last))["proven"]["leaf"] == 2


@on_sqlite
async def test_an_id_whose_record_is_evicted_is_freed_for_another_event_only(books: GroupLedger) -> None:
    topic, everything = await books.log.topic("group:g"), EvictionLimits(max_records=0, keep_undelivered=False)
    await books.log.database.write(evict, topic, everything, now=NOW)
    answer = await release(books, proof_of(TRUE))
    assert answer["holder"] == {
        "stored": False,
        "position": 1,
        "sourceNode": None,
        "digest": None,
        "recordedAt": None,
    }
    assert await outcome(books, TRUE) == [Outcome.NEW]
    await books.log.database.write(evict, topic, everything, now=NOW)
    with pytest.raises(Conflict, match="the proven event itself"):
        await release(books, proof_of(TRUE))


@on_sqlite
async def test_a_tree_of_this_node_needs_no_pin(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec="history: {mode: record}")
    topic, _ = await start(log)
    await outcome(books, TRUE)
    await signed(log, topic)
    file = (await books.call("history.prove", group="g", id="e1"))["file"]
    await log.database.write(free_id, topic, "e1", 1)  # as if it had been evicted, and then forgotten
    await outcome(books, SQUATTER)
    assert (await release(books, file))["proven"]["node"] == "site-a"
    assert await outcome(books, TRUE) == [Outcome.NEW]


@on_sqlite
async def test_the_tree_of_another_group_is_refused(books: GroupLedger) -> None:
    with pytest.raises(CheckFailed, match="not of one of the group g"):
        await release(books, proof_of(TRUE, tree=GrowingTree(group="other")))
