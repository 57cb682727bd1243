"""The ledger `history`, and the leaves of `events`: what is shipped of trees, once, with all that a lost row needs."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.lake.extract import Ledger, read_state
from eventd.lake.history_rows import HistoryKind, read_hash_row
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.history.hints import keep_hints
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.pruning import TileLimits, find_surplus
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.witnesses.findings import FindingKind, NewFinding, keep_finding
from eventd.store.engine.statements import execute, insert_row
from eventd.testing import NOW, draft
from federation.digest import digest
from federation.history.checkpoints import Checkpoint, LogOrigin, read_checkpoint, sign_checkpoint
from federation.history.leaf_hints import LeafPlace
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteSigner, read_note
from tests.support import plain_history as plain
from tests.support.ledger_store import LedgerStore, as_rows

OWNER = TreeOwner("g", "a", Ed25519PrivateKey.from_private_bytes(b"1" * 32))


class Grown(LedgerStore):
    """Group g of node a with a tree."""

    async def open(self) -> str:
        topic = await self.log.topic("group:g")
        return (await self.log.database.write(open_tree, topic, OWNER, NOW)).origin.rpartition("/")[2]

    async def seal(self) -> None:
        topic = await self.log.topic("group:g")
        hashed = await self.log.database.read(hash_new, topic)
        assert hashed is not None
        assert await self.log.database.write(store_checkpoint, hashed, OWNER, NOW + 1) is not None

    async def history(self, after: int = 0) -> tuple[int, list[dict[str, Any]]]:
        """Return how far an extract of the ledger reaches, and its rows."""
        extract = await self.extract(Ledger.HISTORY, after)
        return extract.upto, as_rows(extract)


@pytest.fixture
async def shelf(log: EventLog) -> Grown:
    found = Grown(log)
    await found.declare("b")
    return found


def events(first: int, last: int, **kept: Any) -> list[Any]:
    return [draft(f"e{number}", **kept) for number in range(first, last + 1)]


async def test_own_events_have_their_leaf_and_others_have_none(shelf: Grown) -> None:
    await shelf.publish(draft("early"))
    tree = await shelf.open()
    await shelf.publish(*events(1, 2))
    await shelf.publish(draft("far", node="z", path="z"))
    assert await shelf.rows(Ledger.EVENTS, "tree") == [None, tree, tree, None]
    assert await shelf.rows(Ledger.EVENTS, "leaf") == [None, 1, 2, None]


async def test_events_of_others_have_the_leaf_that_their_sender_stated(shelf: Grown) -> None:
    own = await shelf.open()
    await shelf.publish(*(draft(f"z{number}", node="z", path="z") for number in range(6)))
    await shelf.publish(draft("e1"))
    await shelf.publish(draft("z6", node="z", path="z"))
    topic, far = await shelf.log.topic("group:g"), "z" * 16
    places = [LeafPlace(1, 5, far), LeafPlace(3, 0, ""), LeafPlace(4, 9, far), LeafPlace(6, 3, own)]
    await shelf.log.database.write(keep_hints, topic, places, range(1, 7), range(1, 7))
    await shelf.log.database.write(keep_hints, topic, [LeafPlace(7, 11, far)], [7], [8])
    wanted = [(far, 5), (far, 6), (None, None), (far, 9), (far, 10), (None, None), (own, 1), (far, 11)]
    assert await shelf.rows(Ledger.EVENTS, "tree", "leaf") == wanted
    assert await shelf.rows(Ledger.EVENTS, "tree", "leaf", rows=1) == wanted, "also if an extract begins within a row"


async def test_a_damaged_opening_entry_is_shipped_as_it_is_and_stops_neither_shipping_nor_pruning(shelf: Grown) -> None:
    await shelf.open()
    await shelf.publish(*events(1, 2))
    await shelf.seal()
    await shelf.log.database.write(execute, "UPDATE trees SET opening = ?", (b"\x00\xffdamaged",))
    upto, (opening, checkpoint) = await shelf.history()
    assert (upto, opening["content"], checkpoint["kind"]) == (2, "\ufffddamaged", "checkpoint")
    assert await shelf.history(upto) == (upto, [])
    topic = await shelf.log.topic("group:g")
    assert await shelf.log.database.read(find_surplus, topic, TileLimits(0, None), NOW) is None


async def test_a_tree_is_shipped_as_far_as_it_is_sealed_and_goes_on_from_there(shelf: Grown) -> None:
    tree = await shelf.open()
    await shelf.publish(*events(1, 600))
    assert await shelf.history() == (0, []), "nothing is sealed"
    await shelf.seal()
    upto, (opening, hashes, checkpoint) = await shelf.history()
    assert upto == 600
    assert [row["kind"] for row in (opening, hashes, checkpoint)] == ["opening", "hashes", "checkpoint"]
    assert {(row["number"], row["tree"], row["node"], row["group"]) for row in (opening, checkpoint)} == {
        (600, tree, "a", "g")
    }
    assert (opening["position"], checkpoint["position"], checkpoint["size"]) == (1, 600, 601)
    leaves = [b"\0" + opening["content"].encode(), *(b"\1" + digest(one.body) for one in events(1, 600))]
    assert (hashes["level"], hashes["first"]) == (1, 0)
    assert read_hash_row(hashes["content"]) == [plain.root(leaves[:256]), plain.root(leaves[256:512])]
    signed = read_checkpoint(read_note(checkpoint["content"].encode()).text)
    assert (signed.origin.tree, signed.size, signed.root) == (tree, 601, plain.root(leaves))
    await shelf.publish(*events(601, 800))
    assert await shelf.history(600) == (600, []), "what is not sealed waits"
    await shelf.seal()
    upto, rows = await shelf.history(600)
    assert [(row["kind"], row["first"], row["size"]) for row in rows] == [
        ("hashes", 2, None),
        ("checkpoint", None, 801),
    ]
    assert await shelf.history(upto) == (upto, [])


async def test_a_node_says_how_far_its_trees_are_sealed_and_which_is_open(shelf: Grown) -> None:
    state = await shelf.log.database.read(read_state)
    assert (tuple(state.books[Ledger.HISTORY]), state.groups[0].tree) == ((0, 0), "")
    tree = await shelf.open()
    await shelf.publish(*events(1, 3))
    await shelf.seal()
    await shelf.publish(draft("e4"))
    state = await shelf.log.database.read(read_state)
    assert (tuple(state.books[Ledger.HISTORY]), state.groups[0].tree) == ((1, 3), tree)


async def test_hashes_of_leaves_are_shipped_where_records_were_deleted_before(shelf: Grown) -> None:
    await shelf.open()
    await shelf.publish(*events(1, 2))
    await shelf.publish(*events(3, 4))
    await shelf.seal()
    limits = EvictionLimits(max_records=2, keep_undelivered=False)
    await shelf.log.database.write(evict, await shelf.log.topic("group:g"), limits, now=NOW)
    _, rows = await shelf.history()
    (lost,) = [row for row in rows if row["kind"] == HistoryKind.HASHES]
    assert (lost["level"], lost["first"]) == (0, 1)
    assert read_hash_row(lost["content"]) == [hash_leaf(b"\1" + digest(one.body)) for one in events(1, 2)]


async def test_a_new_tree_takes_over_what_was_not_sealed(shelf: Grown) -> None:
    old = await shelf.open()
    await shelf.publish(*events(1, 2))
    await shelf.seal()
    upto, _ = await shelf.history()
    await shelf.publish(*events(3, 4))
    await shelf.log.database.write(renew_epoch)
    new = await shelf.open()
    await shelf.seal()
    assert new != old
    _, (opening, checkpoint) = await shelf.history(upto)
    assert (opening["tree"], opening["position"], checkpoint["size"]) == (new, 3, 3)
    assert await shelf.rows(Ledger.EVENTS, "leaf") == [1, 2, 1, 2]


async def test_checkpoints_that_the_node_witnessed_are_shipped_when_its_log_goes_on(shelf: Grown) -> None:
    topic = await shelf.log.topic("group:g")
    origin = LogOrigin("g", "z", "z" * 16)
    signer = NoteSigner(str(origin), LOG_KEY, OWNER.private)
    notes = [sign_checkpoint(Checkpoint(origin, size, bytes(32)), signer).encode().decode() for size in (3, 5)]
    row = {"topic_id": topic, "origin": str(origin), "node": "z", "log_key": signer.key.text(), "root": bytes(32)}
    row |= {"size": 5, "note": notes[1], "opened_at": NOW, "witnessed_at": NOW}
    await shelf.log.database.write(insert_row, "witnessed", row)
    assert await shelf.history() == (0, [])
    await shelf.publish(draft("e1"))
    upto, (found,) = await shelf.history()
    assert (upto, found["kind"], found["tree"], found["size"], found["node"]) == (1, "witnessed", "z" * 16, 5, "a")
    assert (found["content"], found["recorded_at"], found["position"]) == (notes[1], NOW, None)
    for other in (notes[0], "eventd/g/z\nnot the note of a checkpoint\n"):
        fork = NewFinding(str(origin), "z", FindingKind.FORK, 5, 3, notes[1], other, "")
        await shelf.log.database.write(keep_finding, topic, fork, NOW)
    await shelf.publish(draft("e2"))
    _, rows = await shelf.history(upto)
    assert sorted({row["content"] for row in rows}) == sorted(notes)
