"""A node's own trees and their witnesses: what is offered, what is kept, and what shows that a database is a copy."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head, read_head, renew_epoch
from eventd.log.history import closed_trees
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.log.history.trees import StoredCheckpoint, Tree, find_open_tree, read_checkpoint_of, read_openings_before
from eventd.log.topics.deleted_topics import clear_deleted, delete_topic
from eventd.log.witnesses.cosignatures import (
    count_cosigned,
    find_witness,
    keep_cosignature,
    note_held_size,
    read_due_offer,
    read_witness_ages,
    reset_witness,
)
from eventd.log.witnesses.findings import read_findings, read_holder
from eventd.log.witnesses.own_notes import OwnNote, Shown, take_own_note
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.testing import NOW, draft
from federation.history.checkpoints import Checkpoint, LogOrigin, open_checkpoint, read_origin, sign_checkpoint
from federation.history.cosignatures import cosign, cosignature_times
from federation.history.entries import OpeningReason, read_opening_entry
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner, read_note, read_vkey
from federation.history.witnessing import HeldCheckpoint, check_offer, witness_name

OWNER = TreeOwner("g", "a", Ed25519PrivateKey.from_private_bytes(b"1" * 32))
WITNESS = NoteSigner(witness_name("g", "b"), WITNESS_KEY, Ed25519PrivateKey.from_private_bytes(b"2" * 32))


class OwnLog:
    """A log with an open tree."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log = log
        self.topic = topic

    async def seal(self, *ids: str, owner: TreeOwner = OWNER) -> tuple[Tree, StoredCheckpoint]:
        await self.log.database.write(open_tree, self.topic, owner, NOW)
        await self.log.append(self.topic, [draft(one, group="g") for one in ids])
        hashed = await self.log.database.read(hash_new, self.topic)
        assert hashed is not None
        await self.log.database.write(store_checkpoint, hashed, owner, NOW)
        tree = await self.log.database.read(find_open_tree, self.topic)
        assert tree is not None
        signed = await self.log.database.read(read_checkpoint_of, tree.id)
        assert signed is not None
        return tree, signed

    async def show(self, note: str) -> tuple[OwnNote, bool]:
        found = await self.log.database.write(take_own_note, Shown(self.topic, OWNER, "b", note), NOW)
        return found[:2]

    async def delete_group(self) -> None:
        def delete(conn: Connection) -> None:
            lock_head(conn)
            delete_topic(conn, "group:g")
            while clear_deleted(conn, now=NOW, chunk=100_000).rows:  # type: ignore[union-attr]
                pass

        await self.log.database.write(delete)
        self.topic = await self.log.topic("group:g")

    async def epoch(self) -> str:
        return (await self.log.database.read(read_head)).epoch


@pytest.fixture
async def own(log: EventLog) -> OwnLog:
    return OwnLog(log, await log.topic("group:g"))


def signed_note(tree: str, size: int, key: TreeOwner = OWNER) -> str:
    origin = LogOrigin(key.group, key.node, tree)
    return sign_checkpoint(Checkpoint(origin, size, bytes(32)), key.signer(origin)).encode().decode()


async def test_a_checkpoint_is_offered_until_it_is_cosigned_and_its_note_keeps_the_cosignature(own: OwnLog) -> None:
    tree, signed = await own.seal("x")
    due = await own.log.database.read(read_due_offer, own.topic, "b")
    assert due is not None
    assert due.offer is not None
    key = read_vkey(tree.log_key, LOG_KEY)
    assert check_offer(due.offer, key, None).size == signed.size == 2
    signature = cosign(due.offer.note.text, WITNESS, 1000)
    assert await own.log.database.write(keep_cosignature, tree.id, "b", 2, signature, NOW)
    assert await own.log.database.write(keep_cosignature, tree.id, "b", 2, signature, NOW), "twice is once"
    kept = await own.log.database.read(read_checkpoint_of, tree.id)
    assert kept is not None
    note = read_note(kept.note.encode())
    assert len(note.signatures) == 2
    assert cosignature_times(note, [WITNESS.key]) == {WITNESS.key: 1000}
    assert open_checkpoint(note, key).size == 2
    assert await own.log.database.read(read_due_offer, own.topic, "b") is None
    assert await own.log.database.read(count_cosigned, tree.id, 2) == 1


async def test_the_next_offer_continues_what_the_witness_holds(own: OwnLog) -> None:
    tree, first = await own.seal("x")
    await own.log.database.write(note_held_size, tree.id, "b", first.size, NOW)
    await own.seal("y", "z")
    due = await own.log.database.read(read_due_offer, own.topic, "b")
    assert due is not None
    assert due.offer is not None
    held = HeldCheckpoint(Checkpoint(read_origin(tree.origin), first.size, first.root), first.note)
    assert check_offer(due.offer, read_vkey(tree.log_key, LOG_KEY), held).size == 4


async def test_a_witness_is_stale_where_its_tiles_are_pruned_until_it_is_reset(own: OwnLog) -> None:
    tree, _ = await own.seal(*(f"e{number}" for number in range(300)))
    await own.log.database.write(note_held_size, tree.id, "b", 2, NOW)
    await own.log.database.write(execute, "DELETE FROM tiles WHERE level = 0 AND number = 0")
    due = await own.log.database.read(read_due_offer, own.topic, "b")
    assert due is not None
    assert due.offer is None
    assert "tile/0/000 is not stored" in due.detail
    assert await own.log.database.write(reset_witness, own.topic, "b") == 1
    assert await own.log.database.read(find_witness, tree.id, "b") is None


async def test_a_note_that_the_database_has_signed_shows_what_the_peer_holds(own: OwnLog) -> None:
    tree, first = await own.seal("x")
    await own.seal("y")
    epoch = await own.epoch()
    assert await own.show(first.note) == (OwnNote.FITS, False)
    held = await own.log.database.read(find_witness, tree.id, "b")
    assert held is not None
    assert (held.size, held.cosigned_at) == (2, None)
    assert await own.epoch() == epoch


async def test_a_size_that_a_peer_holds_is_not_taken_for_cosigned(own: OwnLog) -> None:
    tree, first = await own.seal("x")
    signature = cosign(read_note(first.note.encode()).text, WITNESS, 1000)
    await own.log.database.write(keep_cosignature, tree.id, "b", 2, signature, NOW)
    assert await own.log.database.read(read_witness_ages, own.topic, NOW + 5) == {"b": 0}
    _, second = await own.seal("y")
    assert await own.show(second.note) == (OwnNote.FITS, False)
    assert await own.log.database.read(count_cosigned, tree.id, 3) == 0
    assert await own.log.database.read(read_witness_ages, own.topic, NOW + 5) == {"b": 5}
    due = await own.log.database.read(read_due_offer, own.topic, "b")
    assert due is not None
    assert due.offer is not None
    assert (due.offer.old, due.offer.proof) == (3, ())


@pytest.mark.parametrize("size", [2, 9], ids=["another-root", "a-larger-size"])
async def test_a_note_that_the_database_cannot_have_signed_begins_a_new_epoch_once(own: OwnLog, size: int) -> None:
    tree, signed = await own.seal("x")
    epoch = await own.epoch()
    later = signed_note(read_origin(tree.origin).tree, size)
    assert await own.show(later) == (OwnNote.OLDER_COPY, True)
    assert await own.epoch() != epoch
    [finding] = await own.log.database.read(read_findings, own.topic)
    assert (finding.kind, finding.size, finding.other_size) == ("older_copy", 2, size)
    assert read_holder(finding) == "b"
    assert (finding.note, finding.other_note) == (signed.note, later)
    epoch = await own.epoch()
    assert await own.show(later) == (OwnNote.OLDER_COPY, False)
    assert await own.show(signed_note(read_origin(tree.origin).tree, size + 1)) == (OwnNote.OLDER_COPY, False)
    assert await own.epoch() == epoch
    following, _ = await own.seal("y")
    opening = read_opening_entry(following.opening).opening
    assert opening.reason is OpeningReason.EPOCH
    assert opening.previous is not None
    assert opening.previous.size == 2, "the tree names what this database has signed: the loss is stated"


async def test_a_tree_that_the_database_does_not_have_shows_a_copy_from_before_it(own: OwnLog) -> None:
    await own.seal("x")
    assert await own.show(signed_note("x" * 16, 5)) == (OwnNote.OLDER_COPY, True)
    assert await own.show(signed_note("x" * 16, 5)) == (OwnNote.OLDER_COPY, False)


async def test_a_group_that_is_deleted_and_made_again_continues_from_its_former_tree(own: OwnLog) -> None:
    tree, first = await own.seal("x")
    _, last = await own.seal("y")
    await own.delete_group()
    following, _ = await own.seal("z")
    opening = read_opening_entry(following.opening).opening
    assert opening.reason is OpeningReason.EPOCH
    assert opening.previous == (read_origin(tree.origin), last.size, last.root)
    epoch = await own.epoch()
    for note in (first.note, last.note):
        assert await own.show(note) == (OwnNote.NOTHING, False), "nothing is lost that was not deleted"
    assert (await own.epoch(), await own.log.database.read(read_findings, own.topic)) == (epoch, [])
    assert await own.show(signed_note(read_origin(tree.origin).tree, 9)) == (OwnNote.OLDER_COPY, True)


async def test_the_tree_of_a_group_that_is_made_again_with_another_key_says_so(own: OwnLog) -> None:
    tree, _ = await own.seal("x")
    await own.delete_group()
    rotated = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"4" * 32), retired=OWNER.private)
    following = await own.log.database.write(open_tree, own.topic, rotated, NOW)
    entry = read_opening_entry(following.opening)
    assert entry.opening.reason is OpeningReason.KEY
    assert entry.is_signed_by(read_vkey(tree.log_key, LOG_KEY))
    another = await own.log.database.write(open_tree, await own.log.topic("group:h"), OWNER._replace(group="h"), NOW)
    assert read_opening_entry(another.opening).opening.reason is OpeningReason.FIRST


async def test_of_a_group_that_is_deleted_again_and_again_the_last_trees_are_kept(
    own: OwnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_trees, "MOST_OWN", 2)
    for _ in range(3):
        await own.seal("x")
        await own.delete_group()
    assert len(await own.log.database.read(closed_trees.read_own_closed, "g", "a")) == 2


async def test_a_note_that_this_node_has_not_signed_shows_nothing(own: OwnLog) -> None:
    tree, _ = await own.seal("x")
    thief = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"3" * 32))
    epoch = await own.epoch()
    for note in (
        signed_note(read_origin(tree.origin).tree, 9, thief),
        signed_note("x" * 16, 9, thief),
        signed_note("x" * 16, 9, OWNER._replace(node="b")),
        "nothing",
    ):
        assert await own.show(note) == (OwnNote.NOTHING, False)
    assert await own.epoch() == epoch


async def test_a_retired_key_signs_the_change_of_the_key(own: OwnLog) -> None:
    tree, _ = await own.seal("x")
    rotated = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"4" * 32), retired=OWNER.private)
    following = await own.log.database.write(open_tree, own.topic, rotated, NOW)
    entry = read_opening_entry(following.opening)
    assert entry.opening.reason is OpeningReason.KEY
    assert entry.is_signed_by(read_vkey(tree.log_key, LOG_KEY))


async def test_a_new_tree_is_offered_with_the_rotations_before_it(own: OwnLog) -> None:
    owner, openings, first = OWNER, [], (await own.seal("first"))[0].opening
    for number, letter in enumerate((b"4", b"5", b"6")):
        await own.seal(f"e{number}", owner=owner)
        owner = owner._replace(private=Ed25519PrivateKey.from_private_bytes(letter * 32), retired=owner.private)
        openings.append((await own.log.database.write(open_tree, own.topic, owner, NOW)).opening)
    await own.seal("last", owner=owner)
    due = await own.log.database.read(read_due_offer, own.topic, "b")
    assert due is not None
    assert due.offer is not None
    assert due.offer.opening == openings[-1]
    assert due.offer.rotations == (first, *openings[:-1])
    lost = owner._replace(private=Ed25519PrivateKey.from_private_bytes(b"7" * 32), retired=None)
    await own.seal("more", owner=lost)
    tree, _ = await own.seal("new", owner=lost._replace(private=OWNER.private, retired=lost.private))
    before = await own.log.database.read(read_openings_before, tree, 2)
    assert before == tuple(openings[1:]), "without that of the lost key; at most as many as were asked for, the last"


async def test_a_new_tree_is_offered_with_the_openings_that_lead_to_it(own: OwnLog) -> None:
    openings = []
    for number in range(3):
        tree, _ = await own.seal(f"e{number}")
        openings.append(tree.opening)
        await own.log.database.write(renew_epoch)
    await own.log.database.write(open_tree, own.topic, OWNER, NOW)  # nothing is signed in it, and so it leads nowhere
    await own.log.database.write(renew_epoch)
    await own.seal("last")
    due = await own.log.database.read(read_due_offer, own.topic, "b")
    assert due is not None
    assert due.offer is not None
    assert due.offer.rotations == tuple(openings)
    assert await own.log.database.read(read_openings_before, due.tree, 2) == tuple(openings[1:])


async def test_what_a_node_that_is_not_declared_holds_is_not_recorded(own: OwnLog) -> None:
    tree, signed = await own.seal("x")
    shown = Shown(own.topic, OWNER, "invented", signed.note, declared=False)
    assert await own.log.database.write(take_own_note, shown, NOW) == (OwnNote.FITS, False, 2)
    assert await own.log.database.read(find_witness, tree.id, "invented") is None
