"""What a witness stores and answers for offered checkpoints, each hostile one with its exact finding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.log.core.eventlog import EventLog
from eventd.log.history.relayed import RelayedCheckpoint, ask_tiles, check_tiles, keep_tiles
from eventd.log.history.trees import DAY, MINUTE
from eventd.log.witnesses import decisions, findings
from eventd.log.witnesses.compared_notes import compare_notes, keep_compared
from eventd.log.witnesses.decisions import Decision, decide
from eventd.log.witnesses.findings import (
    FindingKind,
    NewFinding,
    confirm_findings,
    count_open,
    expire_pending,
    is_forked,
    keep_finding,
    read_findings,
    read_forks,
    read_open,
    read_pending,
    settle_pending,
)
from eventd.log.witnesses.keys import LOG, Pins, StoredKey, forget_keys, read_keys, read_known_keys, show_key
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.relayed_notes import RelayedNotes, decide_relayed, find_unheld
from eventd.log.witnesses.witnessed import forget_trees, read_of
from eventd.store.engine.database import Connection
from eventd.testing import NOW
from federation.history.entries import OpeningReason
from federation.history.exchange import TilesAnswer
from federation.history.fork_file import ForkFile, check_fork
from federation.history.notes import SignedNote, read_note, sign_text
from federation.history.witnessing import KeySource, Offer
from tests.support import plain_history as plain
from tests.support.growing_tree import FIRST, SECOND, GrowingTree


class WitnessLog:
    """The database of a witness."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log = log
        self.topic = topic
        self.pins: Pins = {}
        self.now = NOW

    async def offer(
        self, offer: Offer, node: str = "a", source: KeySource = KeySource.SHARED, peers: tuple[str, ...] = ("a",)
    ) -> Decision:
        self.now += 1
        offered = OfferFrom(self.topic, "g", node, source, self.pins, peers, offer)
        return await self.log.database.write(decide, offered, self.now)

    async def cosigned(self, offer: Offer, **more: KeySource) -> int:
        decision = await self.offer(offer, **more)  # type: ignore[arg-type]
        assert decision.error is None, decision.error
        assert decision.checkpoint is not None
        return decision.checkpoint.size

    async def refused(self, offer: Offer, node: str = "a", source: KeySource = KeySource.SHARED) -> str:
        decision = await self.offer(offer, node, source)
        assert decision.error is not None
        return decision.error.code

    async def found(self) -> list[tuple[str, int, int]]:
        rows = await self.log.database.read(read_findings, self.topic)
        return [(one.kind, one.size, one.other_size) for one in reversed(rows)]

    async def hear(self, *notes: SignedNote, teller: str = "c") -> tuple[FindingKind, ...]:
        texts = [note.encode().decode() for note in notes]
        found = await self.log.database.read(compare_notes, self.topic, "g", texts, teller)
        return await self.log.database.write(keep_compared, self.topic, found, self.now)

    async def keys(self) -> list[tuple[str, bytes]]:
        return [(one.source, one.key) for one in await self.log.database.read(read_keys, self.topic)]


@pytest.fixture
async def witness(log: EventLog) -> WitnessLog:
    return WitnessLog(log, await log.topic("group:g"))


async def keep_all_tiles(log: EventLog, topic: int, tree: GrowingTree) -> None:
    """Store the tiles of a small tree that is witnessed."""
    stated, note = tree.checkpoint(), tree.note().encode().decode()
    due = RelayedCheckpoint(str(tree.origin), tree.signer.key.text(), stated.size, stated.root, note, tree.time)
    tile = b"".join(plain.digest(b"\0" + entry) for entry in tree.entries)
    answer = TilesAnswer(tiles=(plain.b64(tile),), opening=tree.entries[0][1:].decode())
    checked = await log.database.read(check_tiles, due, None, ask_tiles(due, None), answer)
    assert await log.database.write(keep_tiles, topic, checked, NOW)


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


async def test_a_tree_is_cosigned_from_its_opening_entry_on_as_it_grows(witness: WitnessLog) -> None:
    tree = GrowingTree()
    assert await witness.cosigned(tree.offer()) == 1
    tree.grow("x", "y")
    assert await witness.cosigned(tree.offer(1)) == 3
    assert await witness.cosigned(tree.offer(3)) == 3, "the same size is cosigned again"
    assert await witness.found() == []
    assert await witness.keys() == [("shared", public(FIRST))]


async def test_another_size_than_the_held_one_is_answered_with_the_held_note(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x", "y", "z")
    await witness.cosigned(tree.offer(size=3))
    decision = await witness.offer(tree.offer(2))
    assert decision.error is not None
    assert decision.error.code == "conflict"
    assert getattr(decision.error, "note", "") == tree.note(3).encode().decode()


async def test_an_older_note_that_is_replayed_changes_nothing(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x", "y", "z")
    await witness.cosigned(tree.offer())
    assert await witness.refused(tree.offer(2, size=3)) == "conflict"
    assert await witness.refused(replace(tree.offer(2, size=3), old=4, proof=())) == "conflict"
    assert await witness.refused(tree.offer(size=2)) == "conflict"
    [held] = await witness.log.database.read(read_of, witness.topic, "a")
    assert (held.size, await witness.found()) == (4, [])


async def test_an_unknown_tree_needs_its_opening_entry(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x")
    assert await witness.refused(tree.offer(1)) == "conflict"
    other = GrowingTree("u", SECOND)
    assert await witness.refused(replace(tree.offer(), opening=other.entries[0])) == "malformed"
    path = tuple(plain.path(0, [*tree.entries, b"\x01" + bytes(32)]))
    assert await witness.refused(replace(tree.offer(), opening_path=path)) == "malformed"


async def test_a_second_root_of_one_size_is_a_fork_that_a_file_proves(witness: WitnessLog) -> None:
    honest, forked = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "other")
    await witness.cosigned(honest.offer())
    assert await witness.refused(forked.offer(2)) == "forked"
    assert await witness.found() == [("fork", 3, 3)]
    assert await witness.refused(forked.offer(2)) == "forked", "it is found once"
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    file = ForkFile((read_note(finding.note.encode()), read_note(finding.other_note.encode())))
    proven = check_fork(file.encode(), [honest.signer.key])
    assert proven.first.root != proven.second.root
    assert await witness.log.database.read(is_forked, witness.topic, "a")
    assert await witness.log.database.read(count_open, witness.topic) == {"fork": 1}
    assert await witness.log.database.write(confirm_findings, witness.topic, "a", NOW) == 1
    assert not await witness.log.database.read(is_forked, witness.topic, "a")


async def test_a_larger_tree_that_does_not_continue_the_held_one_is_a_fork(witness: WitnessLog) -> None:
    honest, forked = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "other", "z")
    await witness.cosigned(honest.offer())
    assert await witness.refused(forked.offer(3), source=KeySource.OWNED) == "forked"
    assert await witness.found() == [("fork", 3, 4)]
    assert await witness.cosigned(honest.grow("z").offer(3)) == 4, "the tree it holds is cosigned as before"


async def test_a_wrong_proof_over_a_shared_secret_is_no_fork_and_the_node_of_the_tree_is_asked(
    witness: WitnessLog,
) -> None:
    honest = GrowingTree().grow("x", "y")
    await witness.cosigned(honest.offer())
    offer = honest.grow("z").offer(3)
    wrong = replace(offer, proof=tuple(bytes(32) for _ in offer.proof))
    for _ in range(2):
        assert await witness.refused(wrong) == "forked"
    assert await witness.found() == []
    assert len(await witness.log.database.read(read_pending, witness.topic, "a")) == 1


async def test_a_fork_at_two_sizes_is_proven_to_others_as_soon_as_one_size_has_two_roots(witness: WitnessLog) -> None:
    honest, forked = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "other", "z")
    await witness.cosigned(honest.offer())
    assert await witness.refused(forked.offer(3), source=KeySource.OWNED) == "forked"
    decision = await witness.offer(honest.grow("z").offer(3))
    assert (decision.error, decision.findings) == (None, (FindingKind.FORK,))
    assert await witness.found() == [("fork", 3, 4), ("fork", 4, 4)]
    finding = (await witness.log.database.read(read_findings, witness.topic))[0]
    file = ForkFile((read_note(finding.note.encode()), read_note(finding.other_note.encode())))
    assert check_fork(file.encode(), [honest.signer.key]).first.size == 4
    assert (await witness.offer(honest.offer(4))).findings == (), "it is found once"


async def test_two_sizes_that_wait_for_a_proof_are_a_fork_once_one_size_has_two_roots(witness: WitnessLog) -> None:
    honest, forked = GrowingTree().grow("x", "y", "z"), GrowingTree().grow("x", "other", "z", "more")
    await witness.cosigned(honest.offer(size=3))
    assert await witness.hear(forked.note(4)) == ()
    assert (await witness.offer(honest.offer(3))).findings == (FindingKind.FORK,)
    assert await witness.found() == [("fork", 4, 4)]
    assert await witness.log.database.read(read_pending, witness.topic, "a") == []
    assert await witness.hear(forked.note(5)) == (), "a size that was seen once waits for its proof"
    other = GrowingTree().grow("x", "third", "z", "more")
    assert await witness.hear(other.note(5)) == (FindingKind.FORK,)
    assert await witness.found() == [("fork", 4, 4), ("fork", 5, 5)]


async def test_of_two_racing_offers_one_is_cosigned(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x", "y")
    await witness.cosigned(tree.offer(size=1))
    first, second = tree.offer(1, size=2), tree.offer(1, size=3)
    assert await witness.cosigned(second) == 3
    assert await witness.refused(first) == "conflict"


async def test_nothing_stays_of_an_offer_that_loses_the_race_for_a_new_tree(
    witness: WitnessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await witness.cosigned(GrowingTree().offer())
    await witness.cosigned(GrowingTree("u", reason=OpeningReason.EPOCH, previous=GrowingTree().previous_at()).offer())
    await witness.log.database.write(forget_keys, witness.topic, "a")
    monkeypatch.setattr(decisions, "MOST_TREES", 2)
    monkeypatch.setattr(decisions, "find_witnessed", lambda *_args, **_more: None)  # read before the other committed
    assert await witness.refused(GrowingTree(key=SECOND, time=NOW + 1).offer()) == "too_many_requests"
    assert (await witness.keys(), await witness.found()) == ([], [])
    assert len(await witness.log.database.read(read_of, witness.topic, "a")) == 2


async def test_a_tree_of_another_node_or_group_is_not_cosigned(witness: WitnessLog) -> None:
    assert await witness.refused(GrowingTree(node="b").offer(), "a") == "wrong_sender"
    assert await witness.refused(GrowingTree().offer(), "b") == "wrong_sender"
    assert await witness.found() == []


async def test_a_note_with_the_signature_of_another_key_proves_nothing(witness: WitnessLog) -> None:
    tree, thief = GrowingTree().grow("x", "y"), GrowingTree(key=SECOND).grow("x", "y")
    await witness.cosigned(tree.offer(size=2))
    assert await witness.refused(replace(tree.offer(2), note=thief.note())) == "malformed"
    assert await witness.found() == []


# --- keys ---------------------------------------------------------------------------------------------------------


async def test_another_key_is_not_taken_over(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().offer())
    other = GrowingTree("u", SECOND, OpeningReason.EPOCH, GrowingTree().previous_at())
    assert await witness.refused(other.offer()) == "key_changed"
    [stored] = await witness.log.database.read(read_keys, witness.topic)
    assert (stored.key, stored.refused) == (public(FIRST), public(SECOND))


async def known(witness: WitnessLog) -> StoredKey:
    [key] = await witness.log.database.read(read_known_keys, witness.topic, witness.pins)
    return key


async def test_another_key_than_the_declared_one_is_noted_also_where_nothing_was_held(witness: WitnessLog) -> None:
    witness.pins = {("a", LOG): public(SECOND)}
    first = await witness.offer(GrowingTree().offer())
    assert (first.error is not None and first.error.code, first.newly_refused) == ("key_changed", True)
    assert not (await witness.offer(GrowingTree().offer())).newly_refused, "it is reported once"
    shown = await known(witness)
    assert (shown.source, shown.key, shown.refused) == ("pinned", public(SECOND), public(FIRST))
    witness.pins = {("a", LOG): public(FIRST)}
    assert (await known(witness)).refused is None, "it is declared by now"
    await witness.cosigned(GrowingTree().offer())
    assert (await known(witness)).key == public(FIRST)


async def test_a_wrong_declaration_is_forgotten_when_it_is_withdrawn(witness: WitnessLog) -> None:
    witness.pins = {("a", LOG): public(SECOND)}
    assert await witness.refused(GrowingTree().offer()) == "key_changed"
    witness.pins = {}
    assert await witness.log.database.read(read_known_keys, witness.topic, {}) == []
    assert await witness.cosigned(GrowingTree().offer()) == 1
    assert (await known(witness)).refused is None


async def test_keys_that_are_shown_one_after_the_other_are_noted_once_a_minute(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().offer())
    others = [
        GrowingTree("u", Ed25519PrivateKey.from_private_bytes(letter * 32), OpeningReason.EPOCH)
        for letter in (b"4", b"5", b"6")
    ]
    assert [(await witness.offer(other.offer())).newly_refused for other in others] == [True, False, False]
    assert (await known(witness)).refused == public(others[0].key), "a member with a shared secret makes no writes"
    witness.now += MINUTE
    assert (await witness.offer(others[1].offer())).newly_refused
    assert (await known(witness)).refused == public(others[1].key)


async def test_a_key_is_noted_as_refused_after_the_clock_was_set_back(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().offer())
    for letter in (b"4", b"5"):
        other = GrowingTree("u", Ed25519PrivateKey.from_private_bytes(letter * 32), OpeningReason.EPOCH)
        assert (await witness.offer(other.offer())).newly_refused
        witness.now -= DAY


async def test_a_refused_key_is_forgotten_when_the_node_continues_with_the_known_one(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x")
    await witness.cosigned(tree.offer())
    assert await witness.refused(GrowingTree("u", SECOND, OpeningReason.EPOCH).offer()) == "key_changed"
    await witness.cosigned(tree.grow("y").offer(2))
    assert (await known(witness)).refused == public(SECOND), "not at once"
    witness.now += MINUTE
    await witness.cosigned(tree.grow("z").offer(3))
    assert (await known(witness)).refused is None


async def test_a_refused_key_is_forgotten_when_the_node_shows_the_known_one_again(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x")
    await witness.cosigned(tree.offer())
    other = GrowingTree("u", SECOND, OpeningReason.KEY, tree.previous_at()).grow("y")
    assert await witness.refused(other.offer()) == "key_changed"
    assert (await known(witness)).refused == public(SECOND)
    restored = GrowingTree("v", FIRST, OpeningReason.KEY, other.previous_at())
    await witness.cosigned(restored.offer())
    assert (await known(witness)).refused is None
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    assert (
        "it was never offered, was refused, for example because of another key, or was forgotten by a reset"
        in finding.detail
    )


async def test_a_tree_whose_key_is_not_the_declared_one_any_more_is_noted(witness: WitnessLog) -> None:
    tree = GrowingTree()
    await witness.cosigned(tree.offer())
    witness.pins = {("a", LOG): public(SECOND)}
    assert await witness.refused(tree.grow("x").offer(1)) == "key_changed"
    shown = await known(witness)
    assert (shown.source, shown.key, shown.refused) == ("pinned", public(SECOND), public(FIRST))
    witness.pins = {}
    shown = await known(witness)
    assert (shown.source, shown.key, shown.refused) == ("shared", public(FIRST), None), "it was learned before"


async def test_a_key_that_was_replaced_is_not_noted_as_another_one(witness: WitnessLog) -> None:
    old = GrowingTree().grow("x")
    witness.pins = {("a", LOG): public(FIRST)}
    await witness.cosigned(old.offer())
    await witness.cosigned(GrowingTree("u", SECOND, OpeningReason.KEY, old.previous_at(), old.signer).offer())
    assert await witness.refused(old.grow("y").offer(2)) == "key_changed"
    assert (await known(witness)).refused is None


async def test_a_rotation_that_the_old_key_signed_is_taken_over(witness: WitnessLog) -> None:
    old = GrowingTree().grow("x")
    await witness.cosigned(old.offer(), source=KeySource.OWNED)
    rotated = GrowingTree("u", SECOND, OpeningReason.KEY, old.previous_at(), old.signer)
    assert await witness.cosigned(rotated.offer()) == 1
    assert await witness.keys() == [("owned", public(SECOND))]
    assert await witness.refused(old.grow("y").offer(2)) == "key_changed", "the old key is good for nothing new"
    assert await witness.found() == []


def rotate(old: GrowingTree, name: str, letter: bytes) -> GrowingTree:
    """The tree that its node opens with the next key."""
    key = Ed25519PrivateKey.from_private_bytes(letter * 32)
    return GrowingTree(name, key, OpeningReason.KEY, old.previous_at(), old.signer)


@pytest.mark.parametrize("pinned", [False, True])
async def test_a_witness_that_was_away_for_two_rotations_follows_them(witness: WitnessLog, pinned: bool) -> None:
    witness.pins = {("a", LOG): public(FIRST)} if pinned else {}
    first = GrowingTree().grow("x")
    await witness.cosigned(first.offer(), source=KeySource.OWNED)
    second = rotate(first, "u", b"2").grow("y")
    third = rotate(second, "v", b"3")
    assert await witness.refused(third.offer()) == "key_changed"
    assert await witness.cosigned(replace(third.offer(), rotations=(second.entries[0],))) == 1
    assert await witness.keys() == [("pinned" if pinned else "owned", public(third.key))]
    assert await witness.found() == [], "the entry in between says that the tree continues what is held"


async def test_a_rotation_that_the_known_key_did_not_sign_leads_nowhere(witness: WitnessLog) -> None:
    first, thief = GrowingTree().grow("x"), GrowingTree("s", SECOND)
    await witness.cosigned(first.offer())
    second = rotate(thief, "u", b"3")
    third = rotate(second, "v", b"4")
    assert await witness.refused(replace(third.offer(), rotations=(second.entries[0],))) == "key_changed"
    other = GrowingTree("w", node="b")
    assert await witness.refused(replace(third.offer(), rotations=(other.entries[0],))) == "malformed"
    assert await witness.keys() == [("shared", public(FIRST))]


@pytest.mark.parametrize("body", ["x", "other"])
async def test_a_rotation_that_another_node_has_made_connects_no_trees(witness: WitnessLog, body: str) -> None:
    """It says what the second tree follows, which the witness was never offered: truly or not, it is no proof."""
    first = GrowingTree().grow("x")
    await witness.cosigned(first.offer())
    stated = GrowingTree().grow(body).previous_at()
    made = GrowingTree("u", SECOND, OpeningReason.KEY, stated)
    third = GrowingTree("v", reason=OpeningReason.EPOCH, previous=GrowingTree("u").previous_at())
    assert await witness.cosigned(replace(third.offer(), rotations=(made.entries[0],))) == 1
    assert await witness.found() == [("unproven", 2, 1)]


async def test_a_signature_that_was_added_to_a_rotation_vouches_for_no_key(witness: WitnessLog) -> None:
    first = GrowingTree().grow("x")
    await witness.cosigned(first.offer())
    between = GrowingTree("u", Ed25519PrivateKey.from_private_bytes(b"3" * 32))
    made = GrowingTree("u", SECOND, OpeningReason.KEY, GrowingTree().grow("other").previous_at())
    second = GrowingTree("v", FIRST, OpeningReason.KEY, between.previous_at(), between.signer)
    added = read_note(second.entries[0][1:])
    added = added.add(sign_text(added.text, made.signer))
    third = GrowingTree("w", reason=OpeningReason.EPOCH, previous=second.previous_at())
    rotations = (made.entries[0], b"\x00" + added.encode())
    assert await witness.cosigned(replace(third.offer(), rotations=rotations)) == 1
    assert await witness.found() == [("unproven", 2, 1)]


async def test_a_key_that_was_lost_needs_a_new_pin(witness: WitnessLog) -> None:
    old = GrowingTree()
    witness.pins = {("a", LOG): public(FIRST)}
    await witness.cosigned(old.offer())
    lost = GrowingTree("u", SECOND, OpeningReason.KEY, old.previous_at())
    assert await witness.refused(lost.offer()) == "key_changed"
    witness.pins = {("a", LOG): public(SECOND)}
    assert await witness.cosigned(lost.offer()) == 1
    assert await witness.keys() == [("pinned", public(SECOND))]


async def test_a_learned_key_is_replaced_after_it_was_forgotten(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().offer())
    lost = GrowingTree("u", SECOND, OpeningReason.KEY, GrowingTree().previous_at())
    assert await witness.log.database.write(forget_keys, witness.topic, "a") == 1
    assert await witness.cosigned(lost.offer()) == 1


async def test_a_pinned_key_wins_over_one_that_came_first(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree(key=SECOND).offer())
    witness.pins = {("a", LOG): public(FIRST)}
    assert await witness.refused(GrowingTree(key=SECOND).grow("x").offer(1)) == "key_changed"
    assert await witness.cosigned(GrowingTree("u").offer()) == 1


async def test_a_key_counts_as_its_strongest_source(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().offer(), source=KeySource.OWNED)
    await witness.cosigned(GrowingTree("u").offer(), source=KeySource.SHARED)
    assert [source for source, _ in await witness.keys()] == ["owned"]


# --- restores -----------------------------------------------------------------------------------------------------


async def test_a_clean_restore_names_all_that_was_cosigned(witness: WitnessLog) -> None:
    old = GrowingTree().grow("x")
    await witness.cosigned(old.offer())
    await witness.cosigned(GrowingTree("u", reason=OpeningReason.EPOCH, previous=old.previous_at()).offer())
    assert await witness.found() == []


async def test_a_restore_from_an_older_copy_states_its_loss(witness: WitnessLog) -> None:
    old = GrowingTree().grow("x", "y", "z")
    await witness.cosigned(old.offer())
    restored = GrowingTree("u", reason=OpeningReason.EPOCH, previous=old.previous_at(2))
    assert await witness.cosigned(restored.offer()) == 1
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    assert (finding.kind, finding.size, finding.other_size) == ("rolled_back", 4, 2)
    assert "2 of 4 leaves" in finding.detail
    assert "2 are abandoned" in finding.detail


async def test_a_copy_that_signed_other_leaves_has_forked_its_tree_and_not_gone_back(witness: WitnessLog) -> None:
    old, copy = GrowingTree().grow("x", "y", "z"), GrowingTree().grow("x", "of the copy")
    await witness.cosigned(old.offer())
    await keep_all_tiles(witness.log, witness.topic, old)
    await witness.cosigned(GrowingTree("u", reason=OpeningReason.EPOCH, previous=copy.previous_at()).offer())
    [forked] = await witness.log.database.read(read_findings, witness.topic)
    assert (forked.kind, forked.origin, forked.size, forked.other_size) == ("fork", str(old.origin), 4, 3)
    for root in (copy.checkpoint(3).root, old.checkpoint(3).root):
        assert root.hex() in forked.detail


async def test_a_restored_node_that_signed_no_other_leaves_has_gone_back_and_not_forked(witness: WitnessLog) -> None:
    old = GrowingTree().grow("x", "y", "z")
    await witness.cosigned(old.offer())
    await keep_all_tiles(witness.log, witness.topic, old)
    await witness.cosigned(GrowingTree("u", reason=OpeningReason.EPOCH, previous=old.previous_at(3)).offer())
    assert await witness.found() == [("rolled_back", 4, 3)]


async def test_another_root_at_a_size_of_which_the_leaves_are_kept_is_a_fork_at_once(witness: WitnessLog) -> None:
    old, copy = GrowingTree().grow("x", "y", "z"), GrowingTree().grow("x", "of the copy")
    await witness.cosigned(old.offer())
    await keep_all_tiles(witness.log, witness.topic, old)
    assert await witness.hear(old.note(3), copy.note()) == ("fork",)
    assert await witness.found() == [("fork", 4, 3)]


async def test_what_a_copy_has_signed_is_written_to_a_file_with_the_note_that_is_kept_of_that_size(
    witness: WitnessLog,
) -> None:
    old, copy = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "of the copy")
    await witness.cosigned(old.offer())
    assert await witness.hear(copy.note(2), teller="a") == (), "what a restored node shows of its former tree is less"
    await keep_all_tiles(witness.log, witness.topic, old)
    await witness.cosigned(old.grow("z").offer(3))
    assert await witness.hear(copy.note(), teller="a") == ("fork",)
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    assert (finding.size, finding.other_size) == (3, 3)
    file = ForkFile((read_note(finding.note.encode()), read_note(finding.other_note.encode())))
    assert check_fork(file.encode(), [old.signer.key]).index is None


async def test_a_node_that_denies_its_former_tree_has_lost_all_of_it(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().grow("x").offer())
    await witness.cosigned(GrowingTree("u").offer())
    assert await witness.found() == [("rolled_back", 2, 0)]


async def test_a_new_tree_that_names_another_root_of_the_former_one_is_a_fork(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().grow("x").offer())
    other = GrowingTree().grow("other").previous_at()
    await witness.cosigned(GrowingTree("u", reason=OpeningReason.EPOCH, previous=other).offer())
    assert await witness.found() == [("fork", 2, 2)]


async def test_a_tree_that_follows_one_that_was_never_offered_is_unproven(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().grow("x").offer())
    between = GrowingTree("v", reason=OpeningReason.EPOCH, previous=GrowingTree().previous_at())
    await witness.cosigned(GrowingTree("u", reason=OpeningReason.EPOCH, previous=between.previous_at()).offer())
    assert await witness.found() == [("unproven", 2, 1)]


def follow(old: GrowingTree, name: str, size: int = 0) -> GrowingTree:
    """The tree that its node opens after another one."""
    return GrowingTree(name, reason=OpeningReason.EPOCH, previous=old.previous_at(size), time=old.time + 1)


async def test_a_former_tree_that_a_holder_of_the_secret_replays_is_no_rollback(witness: WitnessLog) -> None:
    first = GrowingTree("t").grow("x")
    second = follow(first, "u").grow("y")
    await witness.cosigned(follow(second, "v").offer())
    for former in (first, second):
        assert await witness.refused(former.offer()) == "malformed"
    assert await witness.found() == []
    assert await witness.cosigned(first.offer(), source=KeySource.OWNED) == 2
    assert await witness.found() == [("rolled_back", 1, 0)], "the node alone could send it"


async def test_a_former_tree_that_a_relay_brings_is_held_and_finds_nothing(witness: WitnessLog) -> None:
    first = GrowingTree("t").grow("x")
    witness.pins = {("a", LOG): public(FIRST)}
    await witness.cosigned(follow(first, "u").offer())
    offered = OfferFrom(witness.topic, "g", "a", KeySource.SHARED, witness.pins, ("a",), first.offer())
    assert (await witness.log.database.write(decide_relayed, offered, NOW)).error is None
    assert await witness.found() == []
    assert [tree.origin[-1] for tree in await witness.log.database.read(read_of, witness.topic, "a")] == ["u", "t"]


async def test_a_relayed_tree_with_another_key_names_the_known_one_as_declared_or_by_rotation(
    witness: WitnessLog,
) -> None:
    first, thief = GrowingTree().grow("x"), GrowingTree("w", Ed25519PrivateKey.from_private_bytes(b"9" * 32))
    witness.pins = {("a", LOG): public(FIRST)}
    offered = OfferFrom(witness.topic, "g", "a", KeySource.SHARED, witness.pins, ("a",), thief.offer())

    async def why() -> str:
        error = (await witness.log.database.write(decide_relayed, offered, NOW)).error
        assert error is not None
        return error.message

    await witness.cosigned(first.offer())
    assert (await why()).endswith(f"{show_key(LOG, public(FIRST))} of a is declared")
    second = rotate(first, "u", b"2")
    await witness.cosigned(second.offer())
    rotated = show_key(LOG, public(second.key))
    assert (await why()).endswith(f"{rotated} of a is known, by a rotation of the declared key")


async def test_a_tree_that_passes_the_last_one_over_has_abandoned_it(witness: WitnessLog) -> None:
    first = GrowingTree("t").grow("x")
    second = follow(first, "u").grow("y", "z")
    await witness.cosigned(first.offer())
    await witness.cosigned(second.offer())
    restored = GrowingTree("v", reason=OpeningReason.EPOCH, previous=first.previous_at(), time=second.time + 1)
    await witness.cosigned(restored.offer())
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    assert (finding.kind, finding.origin[-1], finding.size, finding.other_size) == ("rolled_back", "u", 3, 0)
    assert f"{restored.origin} follows {first.origin}, and not {second.origin}" in finding.detail
    assert "its 3 leaves are abandoned" in finding.detail
    assert "another node runs with its name and key" in finding.detail


async def test_a_tree_that_passes_the_last_one_over_also_names_what_it_lacks_of_the_one_it_follows(
    witness: WitnessLog,
) -> None:
    first = GrowingTree("t").grow("x")
    older = first.previous_at()
    await witness.cosigned(first.grow("w").offer())
    second = follow(first, "u").grow("y", "z")
    await witness.cosigned(second.offer())
    restored = GrowingTree("v", reason=OpeningReason.EPOCH, previous=older, time=second.time + 1)
    await witness.cosigned(restored.offer())
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    assert f"its 3 leaves are abandoned, and 1 of 3 of {first.origin}. " in finding.detail


def reopen(old: GrowingTree, name: str, time: int) -> GrowingTree:
    """The tree that its node opens after another one, with a clock that was set in between."""
    return GrowingTree(name, reason=OpeningReason.EPOCH, previous=old.previous_at(), time=time)


async def test_trees_are_in_the_order_in_which_they_name_each_other_also_if_a_clock_went_back(
    witness: WitnessLog,
) -> None:
    first = GrowingTree("t").grow("x")
    second = reopen(first, "u", NOW - 30).grow("y")
    third = reopen(second, "v", NOW - 20)
    for tree in (first, second, third):
        await witness.cosigned(tree.offer())
    assert await witness.found() == []
    assert [tree.origin[-1] for tree in await witness.log.database.read(read_of, witness.topic, "a")] == ["v", "u", "t"]


async def test_openings_of_trees_that_were_never_offered_connect_a_new_one_with_what_is_held(
    witness: WitnessLog,
) -> None:
    first = GrowingTree("t").grow("x")
    second = reopen(first, "u", NOW + 10).grow("y")
    third = reopen(second, "v", NOW - 10).grow("z")
    await witness.cosigned(first.offer())
    await witness.cosigned(replace(third.offer(), rotations=(second.entries[0],)))
    assert await witness.found() == []
    await witness.offer(second.offer())
    assert await witness.found() == [], "opened before the third one, whatever the clock was"


@pytest.mark.parametrize("kept", [False, True], ids=["lineage", "kept-tiles"])
async def test_a_tree_that_was_offered_before_the_one_that_it_follows_is_ordered_behind_it(
    witness: WitnessLog, kept: bool
) -> None:
    first = GrowingTree().grow("x")
    second = reopen(first, "u", NOW - 30).grow("y")
    third = reopen(second, "v", NOW - 20).grow("z")
    fourth = reopen(third, "w", NOW - 10)
    await witness.cosigned(first.offer())
    await witness.cosigned(third.offer(), source=KeySource.OWNED)
    if kept:
        await keep_all_tiles(witness.log, witness.topic, third)
    await witness.cosigned(second.offer())
    rotations = () if kept else (second.entries[0], third.entries[0])
    await witness.cosigned(replace(fourth.offer(), rotations=rotations), source=KeySource.OWNED)
    assert await witness.found() == [("unproven", 2, 2)], "what the third one follows was not known at first"
    held = await witness.log.database.read(read_of, witness.topic, "a")
    assert [tree.origin for tree in held] == [str(tree.origin) for tree in (fourth, third, second, first)]


@pytest.mark.parametrize("time", [-5, 2, 3, 4])
async def test_all_kept_trees_that_follow_a_tree_are_ordered_behind_it(witness: WitnessLog, time: int) -> None:
    first = GrowingTree().grow("x")
    second = reopen(first, "u", NOW - 30).grow("y")
    third = reopen(second, "v", NOW - 20).grow("z")
    fourth = reopen(third, "w", NOW - 10).grow("z")
    restored = reopen(second, "x", NOW + time).grow("z")
    await witness.cosigned(first.offer())
    for tree in (third, fourth, restored):
        await witness.cosigned(tree.offer(), source=KeySource.OWNED)
        await keep_all_tiles(witness.log, witness.topic, tree)
    await witness.cosigned(second.offer(), source=KeySource.OWNED)
    held = await witness.log.database.read(read_of, witness.topic, "a")
    assert [(tree.origin[-1], tree.opened_at - NOW) for tree in held] == [*zip("xwvut", (4, 3, 2, 1, 0), strict=True)]


async def test_a_fork_that_an_earlier_opening_shows_comes_with_its_note(witness: WitnessLog) -> None:
    first = GrowingTree().grow("x")
    second = reopen(GrowingTree().grow("other"), "u", NOW + 1).grow("y")
    third = reopen(second, "v", NOW + 2)
    await witness.cosigned(first.offer())
    await witness.cosigned(replace(third.offer(), rotations=(second.entries[0],)))
    [finding] = await witness.log.database.read(read_findings, witness.topic)
    assert finding.kind == FindingKind.FORK
    assert finding.detail.startswith(f"{second.origin} names another root of {first.origin}")
    assert finding.other_note.encode() == second.entries[0][1:]


async def test_openings_that_lead_past_the_last_tree_show_that_it_was_abandoned(witness: WitnessLog) -> None:
    first = GrowingTree("t").grow("x")
    second = reopen(first, "u", NOW + 1).grow("y")
    between = reopen(first, "v", NOW + 2)
    await witness.cosigned(first.offer())
    await witness.cosigned(second.offer())
    await witness.cosigned(replace(reopen(between, "w", NOW + 3).offer(), rotations=(between.entries[0],)))
    assert await witness.found() == [("rolled_back", 2, 0)]


# --- notes of others, bounds --------------------------------------------------------------------------------------


async def test_a_split_view_is_found_with_a_common_third(witness: WitnessLog) -> None:
    honest, forked = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "other")
    await witness.cosigned(honest.offer())
    assert await witness.hear(honest.note()) == ()
    assert await witness.hear(forked.note()) == (FindingKind.FORK,)
    assert await witness.found() == [("fork", 3, 3)]


async def test_notes_of_unknown_trees_and_of_wrong_keys_find_nothing(witness: WitnessLog) -> None:
    await witness.cosigned(GrowingTree().grow("x", "y").offer())
    thief = GrowingTree(key=SECOND).grow("x", "other")
    assert await witness.hear(thief.note(), GrowingTree("u").note()) == ()
    assert await witness.found() == []


async def test_the_trees_of_invented_nodes_are_bounded_and_displace_no_peer(
    witness: WitnessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "MOST_ORIGINS", 2)
    await witness.cosigned(GrowingTree().offer())
    await witness.offer(GrowingTree(node="x1").offer(), "x1")
    error = (await witness.offer(GrowingTree(node="x2").offer(), "x2")).error
    assert error is not None
    assert (error.code, error.is_fault) == ("malformed", False), "the sender is honest, and offers it again"
    known = await witness.log.database.read(read_keys, witness.topic)
    assert [key.node for key in known] == ["a", "x1"], "nothing of the refused one stays"
    assert (await witness.offer(GrowingTree(node="b").offer(), "b", peers=("a", "b"))).error is None
    assert await witness.log.database.read(read_of, witness.topic, "x1") == []
    assert await witness.log.database.read(read_of, witness.topic, "a")


async def test_the_trees_of_one_node_are_bounded(witness: WitnessLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_TREES", 2)
    for name in "tuvw":
        await witness.cosigned(GrowingTree(name).offer())
    held = await witness.log.database.read(read_of, witness.topic, "a")
    assert [tree.origin[-1] for tree in held] == ["v", "w"]


async def test_a_former_tree_is_not_cosigned_again_from_its_beginning(
    witness: WitnessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "MOST_TREES", 2)
    trees = [GrowingTree("t").grow("x")]
    for name in "uvw":
        await witness.cosigned(trees[-1].offer())
        trees.append(follow(trees[-1], name).grow("y"))
    rewritten = GrowingTree("t", reason=OpeningReason.EPOCH, previous=trees[2].previous_at(), time=trees[2].time + 1)
    assert await witness.refused(rewritten.grow("z").offer(), source=KeySource.OWNED) == "malformed"
    heard = RelayedNotes(
        witness.topic, "g", "b", "c", [rewritten.note().encode().decode()], {("a", LOG): public(FIRST)}, ()
    )
    assert await witness.log.database.read(find_unheld, heard, NOW) == {}, "and a relay is not asked about it"
    assert await witness.found() == []
    await witness.log.database.write(forget_trees, witness.topic, "a", NOW)
    assert await witness.cosigned(rewritten.offer()) == 2, "after a reset it is as unknown as any"


async def test_a_node_without_end_of_trees_is_refused_and_displaces_no_others(
    witness: WitnessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "MOST_TREES", 1)
    monkeypatch.setattr(decisions, "MOST_CLOSED", 1)
    for name in "tu":
        await witness.cosigned(GrowingTree(name).offer())
    assert await witness.refused(GrowingTree("v").offer()) == "malformed"
    assert (await witness.offer(GrowingTree(node="x").offer(), "x")).error is None
    assert await witness.refused(GrowingTree("u", node="x").offer(), "x") == "malformed", "it is no peer"


async def test_the_findings_about_one_node_are_bounded_and_forks_have_room(
    witness: WitnessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "MOST_OF_NODE", 2)
    for name in "tuvwx":
        await witness.cosigned(GrowingTree(name).offer())
    assert [kind for kind, *_ in await witness.found()] == ["rolled_back"] * 2
    await witness.cosigned(GrowingTree("x").grow("y").offer(1))
    assert await witness.refused(GrowingTree("x").grow("z").offer(1)) == "forked"
    assert [kind for kind, *_ in await witness.found()] == ["rolled_back", "rolled_back", "fork"]
    await witness.log.database.write(confirm_findings, witness.topic, "a", NOW)
    await witness.cosigned(GrowingTree("s").offer())
    assert [kind for kind, *_ in await witness.found()][-1] == "rolled_back", "confirmed ones leave room"


async def test_findings_are_read_from_the_newest_on(witness: WitnessLog) -> None:
    def keep(conn: Connection) -> None:
        for number in range(1, 8):
            kind = FindingKind.FORK if number % 2 else FindingKind.RESET
            keep_finding(conn, witness.topic, NewFinding(f"t{number}", "a", kind, 1, 1, "", str(number), ""), number)

    read = witness.log.database.read
    await witness.log.database.write(keep)
    newest = await read(read_findings, witness.topic, limit=3)
    assert [one.origin for one in newest] == ["t7", "t6", "t5"]
    following = await read(read_findings, witness.topic, before=newest[-1].id, limit=9)
    assert [one.origin for one in following] == ["t4", "t3", "t2", "t1"]
    assert [one.origin for one in await read(read_open, witness.topic, limit=2)] == ["t7", "t5"]
    assert [one.origin for one in await read(read_forks, witness.topic, 3)] == ["t3", "t5", "t7"]
    await witness.log.database.write(confirm_findings, witness.topic, "a", NOW)
    assert await read(read_open, witness.topic, limit=2) == []


async def test_later_findings_of_another_kind_do_not_hide_a_fork(witness: WitnessLog) -> None:
    def keep(conn: Connection) -> None:
        for number, kind in enumerate([FindingKind.FORK, *[FindingKind.REFUTED] * 3, FindingKind.UNPROVEN]):
            keep_finding(conn, witness.topic, NewFinding(f"t{number}", "a", kind, 1, 1, "", "", ""), number)

    await witness.log.database.write(keep)
    found = await witness.log.database.read(read_open, witness.topic, limit=2)
    assert [one.origin for one in found] == ["t0", "t3", "t2", "t4"], "the worst kind first"


async def test_a_reset_forgets_the_trees_of_a_node_and_is_recorded(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x")
    await witness.cosigned(tree.offer())
    assert await witness.log.database.write(forget_trees, witness.topic, "a", NOW) == 1
    assert await witness.found() == [("reset", 2, 0)]
    assert await witness.cosigned(tree.offer()) == 2


async def test_two_sizes_wait_for_a_proof_of_their_node_and_expire_without_it(witness: WitnessLog) -> None:
    tree = GrowingTree().grow("x", "y")
    await witness.cosigned(tree.offer(size=2))
    assert await witness.hear(tree.note(3), tree.note(1)) == ()
    database, topic = witness.log.database, witness.topic
    [pending] = await database.read(read_pending, topic, "a")
    assert (pending.size, pending.other_size) == (2, 3)
    assert await witness.found() == [], "what waits is not shown"
    await database.write(settle_pending, pending.id, None)
    assert await database.read(read_pending, topic, "a") == []
    await witness.hear(tree.note(3))
    assert await database.write(expire_pending, topic, witness.now) == 0
    assert await database.write(expire_pending, topic, witness.now + 1) == 1
    assert await witness.found() == [("unproven", 2, 3)]
