"""Mode `verify`: what the tree of its node says of each event that a hub brings, of true and of forged ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.freed_ids import free_id
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.scan import scan
from eventd.log.core.values import Outcome
from eventd.log.history import refuted
from eventd.log.history.hints import find_hint, keep_hints, read_hints
from eventd.log.history.pruning import SurplusTiles, delete_tiles
from eventd.log.history.refuted import MOST_BACK, find_refuted, read_refuted_at
from eventd.log.history.relayed import RelayedCheckpoint, ask_tiles, check_tiles, keep_tiles
from eventd.log.history.trees import find_hash, find_tree_of
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.witnesses import checking
from eventd.log.witnesses.checked_rows import keep_checked
from eventd.log.witnesses.checking import (
    DAY,
    GRACE,
    LONGEST_WAIT,
    WAIT,
    CheckedStep,
    CheckScope,
    Searched,
    check_due,
    read_overdue,
)
from eventd.log.witnesses.decisions import decide
from eventd.log.witnesses.findings import FindingKind, NewFinding, keep_finding, read_findings
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW, draft
from federation.history.checkpoints import read_origin
from federation.history.entries import OpeningReason
from federation.history.exchange import TilesAnswer
from federation.history.leaf_hints import LeafPlace
from federation.history.witnessing import KeySource
from tests.support import plain_history as plain
from tests.support.growing_tree import GrowingTree
from tests.support.histories import emit

TREE = "t" * 16
LATER = NOW + GRACE


class Checked:
    """A node that gets events of node `a` from `hub`, and has the tree of `a`."""

    def __init__(self, log: EventLog, topic: int) -> None:
        self.log, self.topic = log, topic
        self.scope = CheckScope(topic, "g", ["a"], ["hub"])
        self.wanted: list[tuple[str, str]] = []
        self.searched: Searched = {}

    async def get(self, *ids: str, leaf: int = 0, path: str = "a,hub") -> list[str]:
        """Store events, said to have the leaves from `leaf` on; return their texts."""
        known = len(await self.bodies())
        await emit(self.log, self.topic, *ids, path=path)
        stored = range(known + 1, known + len(ids) + 1)
        places = [LeafPlace(stored[0], leaf, TREE)] if leaf else []
        await self.log.database.write(keep_hints, self.topic, places, stored, stored, NOW)
        return (await self.bodies())[known:]

    async def bodies(self) -> list[str]:
        def read(conn: Connection) -> list[str]:
            return [body for block in scan(conn, self.topic, 0, 1 << 40) for body in block.bodies()]

        return await self.log.database.read(read)

    async def pull(self, tree: GrowingTree, now: int = NOW) -> None:
        """Witness a tree, and store all its tiles."""
        origin, stated, note = str(tree.origin), tree.checkpoint(), tree.note().encode().decode()
        due = RelayedCheckpoint(origin, tree.signer.key.text(), stated.size, stated.root, note, tree.time)
        leaves = [plain.digest(b"\0" + entry) for entry in tree.entries]

        def write(conn: Connection) -> None:
            kept = find_tree_of(conn, self.topic, origin)
            held = find_witnessed(conn, self.topic, origin)
            offer = tree.offer(held.size if held else 0)
            offered = OfferFrom(self.topic, "g", tree.node, KeySource.SHARED, {}, [tree.node], offer)
            assert decide(conn, offered, NOW).error is None
            asked = ask_tiles(due, kept)
            tiles = [b"".join(leaves[at : at + 256]) for at in range(asked.first * 256, asked.end, 256)]
            opening = "" if asked.first else tree.entries[0][1:].decode()
            answer = TilesAnswer(tiles=tuple(map(plain.b64, tiles)), opening=opening)
            assert keep_tiles(conn, self.topic, check_tiles(conn, due, kept, asked, answer), now)

        await self.log.database.write(write)

    async def witness(self, tree: GrowingTree, old: int = 0) -> None:
        """Witness a tree, of which the first `old` leaves are witnessed, without its tiles."""
        offered = OfferFrom(self.topic, "g", tree.node, KeySource.SHARED, {}, [tree.node], tree.offer(old))
        assert (await self.log.database.write(decide, offered, NOW)).error is None

    async def step(self, now: int) -> CheckedStep:
        return await self.log.database.read(check_due, self.scope, now, self.searched)

    async def check(self, now: int = NOW) -> tuple[int, int, int]:
        """Check what is due; return how many events were verified, refuted and unproven."""
        step = await self.step(now)
        self.wanted = list(step.wanted)
        counts = (await self.log.database.write(keep_checked, self.topic, step.rows, now)).verdicts
        return counts["verified"], counts["refuted"], counts["unproven"]  # type: ignore[index]

    async def found(self) -> list[tuple[str, str]]:
        found = await self.log.database.read(read_findings, self.topic)
        return [(one.kind, one.node) for one in found]

    async def rows(self) -> Sequence[tuple[int, int | None]]:
        return await self.log.database.read(fetch, "SELECT checked, due FROM leaf_hints ORDER BY position")

    async def ids(self) -> tuple[int, int]:
        """The number of ids by the topic's row, and by their own rows."""
        stored = "SELECT (SELECT ids FROM topics WHERE id = ?), (SELECT count(*) FROM event_ids WHERE topic_id = ?)"
        [row] = await self.log.database.read(fetch, stored, (self.topic, self.topic))
        return row


@pytest.fixture
async def checked(log: EventLog) -> Checked:
    return Checked(log, await log.topic("group:g"))


async def test_events_are_verified_when_a_tree_covers_them(checked: Checked) -> None:
    tree = GrowingTree().grow(*await checked.get("e1", "e2", leaf=1))
    assert await checked.check() == (0, 0, 0)
    assert checked.wanted == [("hub", str(tree.origin))], "the hub is asked, which brought them"
    overdue = [await checked.log.database.read(read_overdue, checked.topic, NOW + WAIT + late) for late in (-1, 5)]
    assert overdue == [0, 5]
    await checked.pull(tree)
    assert await checked.check(NOW + WAIT - 1) == (0, 0, 0)
    assert await checked.check(NOW + WAIT) == (2, 0, 0)
    assert await checked.rows() == [(2, None)]
    assert await checked.check(NOW + DAY) == (0, 0, 0), "once is enough"


async def test_a_batch_that_is_covered_in_part_continues_where_it_was(checked: Checked) -> None:
    one, two = await checked.get("e1", "e2", leaf=1)
    tree = GrowingTree().grow(one)
    await checked.pull(tree)
    assert await checked.check() == (1, 0, 0)
    await checked.pull(tree.grow(two))
    assert await checked.check(NOW + WAIT) == (1, 0, 0)


async def test_a_forged_event_is_refuted_and_its_id_is_free(checked: Checked) -> None:
    true, forged = await checked.get("e1", "e2", leaf=1)
    await checked.pull(GrowingTree().grow(true, "the true event of e2"))
    assert await checked.check(LATER) == (1, 1, 0)
    assert await checked.found() == [("refuted", "hub")]
    [finding] = await checked.log.database.read(read_findings, checked.topic)
    there = plain.digest(b"\0\1" + plain.digest(b"the true event of e2")).hex()
    mine = plain.digest(b"\0\1" + plain.digest(forged.encode())).hex()
    for part in ("e2", "position 2", plain.digest(forged.encode()).hex(), there, mine, "leaf 2", TREE):
        assert part in finding.detail
    [mark] = await checked.log.database.read(find_refuted, checked.topic, "e2")
    assert (mark.position, mark.leaf) == (2, 2)
    assert await checked.log.database.read(read_refuted_at, checked.topic, [1, 2]) == [mark]
    assert await checked.ids() == (1, 1)
    assert len(await checked.bodies()) == 2, "the record stays"
    await emit(checked.log, checked.topic, "e2", path="a,other")
    assert await checked.ids() == (2, 2), "the true event gets in"


async def test_the_id_of_a_refuted_refresh_is_that_of_the_true_event_again(checked: Checked) -> None:
    log, topic = checked.log, checked.topic
    true, *refreshes = (draft("e1", path="a,hub", expires=NOW + days * DAY) for days in (1, 2, 3))
    await log.append(topic, [true])
    for refresh in refreshes:
        await log.append(topic, [refresh])
    await log.database.write(keep_hints, topic, [LeafPlace(1, 1, TREE)], [1, 2, 3], [1, 2, 3], NOW)
    await checked.pull(GrowingTree().grow(*(await checked.bodies())[:1], "x", "y"))
    found = [await checked.check(LATER) for _ in range(2)]
    assert found == [(1, 1, 0), (0, 1, 0)], "one step reads back once: the record may lie far back"
    assert [mark.position for mark in await log.database.read(find_refuted, topic, "e1")] == [3, 2]
    again = await log.append(topic, [true])
    assert (list(again.outcomes), list(again.positions)) == ([Outcome.DUPLICATE], [1])
    assert await checked.ids() == (1, 1)


async def test_one_step_reads_back_once_also_if_the_refreshed_record_is_evicted(checked: Checked) -> None:
    log, topic = checked.log, checked.topic
    for days in (1, 2):
        for event_id in ("e1", "e2"):
            await log.append(topic, [draft(event_id, path="a,hub", expires=NOW + days * DAY)])
    await log.database.write(keep_hints, topic, [LeafPlace(3, 1, TREE)], [3, 4], [3, 4], NOW)
    await log.database.write(evict, topic, EvictionLimits(max_records=2, keep_undelivered=False), now=NOW)
    await checked.pull(GrowingTree().grow("x", "y"))
    assert [await checked.check(LATER) for _ in range(3)] == [(0, 1, 0), (0, 1, 0), (0, 0, 0)]
    assert await checked.ids() == (0, 0)


@pytest.mark.parametrize(("back", "holder"), [(MOST_BACK, 2), (0, 1)], ids=["usual", "too far back"])
async def test_the_id_of_a_refuted_refresh_is_that_of_the_true_refresh_before_it(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, back: int, holder: int
) -> None:
    monkeypatch.setattr(refuted, "MOST_BACK", back)
    log, topic = checked.log, checked.topic
    for days in (1, 2, 3):
        await log.append(topic, [draft("e1", path="a,hub", expires=NOW + days * DAY)])
    await log.database.write(keep_hints, topic, [LeafPlace(1, 1, TREE)], [1, 2, 3], [1, 2, 3], NOW)
    await checked.pull(GrowingTree().grow(*(await checked.bodies())[:2], "x", "y"))
    assert await checked.check(LATER) == (2, 1, 0)
    assert await log.database.read(fetch, "SELECT position FROM event_ids") == [(holder,)]
    for with_refuted in (False, True) if back else ():
        listed = (await log.database.read(list_latest, EventQuery(topic, refuted=with_refuted))).records
        assert [one.position for one in listed] == [2, *([3] if with_refuted else [])]
    assert await checked.ids() == (1, 1)
    again = await log.append(topic, [draft("e1", path="a,hub", expires=NOW + 4 * DAY)])
    assert list(again.outcomes) == [Outcome.REFRESH]


async def test_a_forged_event_and_its_forged_refresh_leave_the_id_free(checked: Checked) -> None:
    log, topic = checked.log, checked.topic
    for days in (1, 2):
        await log.append(topic, [draft("e1", path="a,hub", expires=NOW + days * DAY)])
    await log.database.write(keep_hints, topic, [LeafPlace(1, 1, TREE)], [1, 2], [1, 2], NOW)
    await checked.pull(GrowingTree().grow("x", "y"))
    assert await checked.check(LATER) == (0, 2, 0)
    assert await checked.ids() == (0, 0)


async def test_a_true_event_under_a_false_hint_is_found_and_the_hint_corrected(checked: Checked) -> None:
    one, two, three = await checked.get("e1", "e2", "e3", leaf=2)
    await checked.pull(GrowingTree().grow(one, "x", "y", two, three, "z"))
    assert await checked.check() == (3, 0, 0)
    assert await checked.found() == []
    hints = [await checked.log.database.read(find_hint, checked.topic, position) for position in (1, 2, 3)]
    assert hints == [(TREE, 1), (TREE, 4), (TREE, 5)]
    assert all(place.position <= 4 for place in await checked.log.database.read(read_hints, checked.topic, 0, 9))


async def test_what_its_node_may_seal_later_is_not_refuted_at_once(checked: Checked) -> None:
    [late] = await checked.get("e1", leaf=1)
    tree = GrowingTree().grow("x")
    await checked.pull(tree)
    assert await checked.check() == (0, 0, 0)
    assert checked.wanted == [("hub", str(tree.origin))], "a later state is asked for"
    await checked.pull(tree.grow(late))
    assert await checked.check(LATER) == (1, 0, 0)


def restored(tree: GrowingTree) -> GrowingTree:
    """The tree that a node opens when it finds out that its database is an older copy."""
    return GrowingTree("u", reason=OpeningReason.EPOCH, previous=tree.previous_at(), time=NOW + 1)


async def test_an_event_that_a_restored_node_moved_to_its_next_tree_is_not_refuted(checked: Checked) -> None:
    [moved] = await checked.get("e1", leaf=1)
    await checked.pull(tree := GrowingTree().grow("of the newer copy"))
    await checked.witness(following := restored(tree).grow(moved))
    assert await checked.check() == (0, 0, 0)
    assert checked.wanted == [("hub", str(tree.origin)), ("hub", str(following.origin))]
    assert await checked.check(LATER) == (0, 0, 0)
    assert checked.wanted == [("hub", str(following.origin))], "nothing is said before its tiles are here"
    await checked.pull(following)
    assert await checked.check(LATER + WAIT) == (1, 0, 0)


async def test_a_forged_event_is_refuted_once_the_tiles_of_later_trees_are_here(checked: Checked) -> None:
    await checked.get("e1", leaf=1)
    await checked.pull(tree := GrowingTree().grow("x"))
    await checked.pull(following := restored(tree).grow("y"))
    await checked.witness(following.grow("z"), old=2)
    assert await checked.check(LATER) == (0, 0, 0)
    await checked.pull(following, LATER)
    await checked.witness(following.grow("witnessed a little further than the tiles reach"), old=3)
    assert await checked.check(LATER + WAIT) == (0, 1, 0)


async def test_an_event_that_its_tree_ended_without_is_found_in_the_next_one(checked: Checked) -> None:
    await checked.get("e1", leaf=2)
    [moved] = await checked.get("e2", leaf=2)
    await checked.pull(tree := GrowingTree().grow("x"))
    assert await checked.check() == (0, 0, 0)
    assert checked.wanted == [("hub", str(tree.origin))]
    await checked.witness(following := restored(tree).grow("y", moved))
    assert await checked.check(NOW + WAIT) == (0, 0, 0)
    assert ("hub", str(following.origin)) in checked.wanted
    await checked.pull(following)
    assert await checked.check(NOW + 2 * WAIT) == (1, 0, 0)
    assert await checked.log.database.read(find_hint, checked.topic, 2) == (read_origin(str(following.origin)).tree, 2)
    assert await checked.rows() == [(0, NOW + 3 * WAIT), (2, None)], (
        "the other event waits for the tree that was stated"
    )


async def test_an_event_under_an_unknown_tree_is_found_in_another_one_of_its_node(checked: Checked) -> None:
    [moved] = await checked.get("e1", leaf=7)
    await checked.pull(GrowingTree("u").grow("x", moved))
    assert await checked.check(LATER - 1) == (0, 0, 0), "the stated tree may be about to be witnessed"
    assert await checked.check(LATER + WAIT) == (1, 0, 0)
    assert await checked.found() == []


async def test_an_event_is_unproven_if_a_later_tree_never_comes_or_is_pruned(checked: Checked) -> None:
    await checked.get("e1", leaf=1)
    await checked.pull(tree := GrowingTree().grow("x"))
    await checked.witness(following := restored(tree).grow(*map(str, range(600))))
    assert await checked.check(LATER) == (0, 0, 0)
    assert await checked.check(NOW + DAY + 1) == (0, 0, 1)
    await checked.get("e2", leaf=1)
    await checked.pull(following)
    kept = await checked.log.database.read(find_tree_of, checked.topic, str(following.origin))
    assert kept is not None
    await checked.log.database.write(delete_tiles, SurplusTiles(kept.id, 1, 2))
    assert await checked.check(LATER) == (0, 0, 1)


async def test_events_that_a_hub_reorders_are_found_where_they_are(checked: Checked) -> None:
    bodies = await checked.get("e1", "e2", "e3", leaf=1)
    await checked.pull(GrowingTree().grow(*reversed(bodies)))
    assert await checked.check(LATER) == (3, 0, 0)


async def test_an_event_that_a_hub_changes_is_refuted(checked: Checked) -> None:
    [true] = await checked.get("e1", leaf=1, path="a,other")
    await checked.log.database.write(execute, "DELETE FROM leaf_hints")
    await checked.log.database.write(free_id, checked.topic, "e1", 1)
    await checked.log.append(checked.topic, [draft("e1", subject="changed", path="a,hub")])
    await checked.log.database.write(keep_hints, checked.topic, [LeafPlace(2, 1, TREE)], [2], [2], NOW)
    await checked.pull(GrowingTree().grow(true))
    assert await checked.check(LATER) == (0, 1, 0)


async def test_what_a_hub_leaves_out_refutes_nothing(checked: Checked) -> None:
    [first] = await checked.get("e1", leaf=1)
    [third] = await checked.get("e3", leaf=3)
    await checked.pull(GrowingTree().grow(first, "left out", third))
    assert await checked.check(LATER) == (2, 0, 0)


async def test_events_without_a_hint_are_unproven_and_leave_no_row(checked: Checked) -> None:
    await checked.get("e1", "e2")
    assert await checked.check() == (0, 0, 2)
    assert await checked.rows() == []
    assert await checked.found() == []


async def test_an_event_of_a_node_without_a_known_key_is_unproven(checked: Checked) -> None:
    await checked.get("e1", leaf=1, path="z,hub")
    assert await checked.check() == (0, 0, 1)
    assert checked.wanted == []


async def test_an_event_over_a_node_that_cannot_be_asked_is_unproven(checked: Checked) -> None:
    await checked.get("e1", leaf=1, path="a,other")
    assert await checked.check() == (0, 0, 1)


async def test_a_hint_at_the_tree_of_another_node_refutes_nothing(checked: Checked) -> None:
    await checked.get("e1", leaf=1, path="z,hub")
    await checked.pull(GrowingTree().grow("x"))
    assert await checked.check(LATER) == (0, 0, 1)


async def test_a_tree_of_another_node_with_the_same_id_hides_no_tree(checked: Checked) -> None:
    [text, *_] = await checked.get("true", "forged", leaf=1)
    await checked.pull(GrowingTree().grow(text, "another"))
    await checked.pull(GrowingTree(node="m", time=1))
    assert await checked.check(LATER) == (1, 1, 0)


async def test_a_hint_beyond_the_end_of_a_tree_waits_for_a_day(checked: Checked) -> None:
    await checked.get("e1", leaf=1 << 40)
    await checked.get("e2")
    await checked.pull(GrowingTree().grow("x"))
    assert await checked.check(NOW) == (0, 0, 1), "other batches do not wait for it"
    assert await checked.check(NOW + DAY) == (0, 0, 0)
    assert await checked.check(NOW + DAY + LONGEST_WAIT - 1) == (0, 0, 0), "what waits for long is looked at rarely"
    assert await checked.check(NOW + DAY + LONGEST_WAIT) == (0, 0, 1)


async def test_a_pause_that_began_while_the_clock_was_ahead_ends_once_the_clock_is_right(checked: Checked) -> None:
    tree = GrowingTree().grow(*await checked.get("e1", leaf=1))
    assert await checked.check(NOW + DAY // 2) == (0, 0, 0)
    await checked.pull(tree)
    assert await checked.check(NOW) == (1, 0, 0)


async def test_pruned_tiles_refute_nothing(checked: Checked) -> None:
    await checked.get("e1", leaf=1)
    await checked.get("e2", leaf=300)
    tree = GrowingTree().grow(*map(str, range(600)))
    await checked.pull(tree)
    kept = await checked.log.database.read(find_tree_of, checked.topic, str(tree.origin))
    assert kept is not None
    await checked.log.database.write(delete_tiles, SurplusTiles(kept.id, 1, 2))
    assert await checked.check(LATER) == (0, 0, 2)


async def test_a_step_is_bounded_and_the_next_one_continues(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_EVENTS", 2)
    await checked.pull(GrowingTree().grow(*await checked.get("e1", "e2", "e3", leaf=1)))
    assert (await checked.step(NOW)).more
    assert [await checked.check() for _ in range(3)] == [(2, 0, 0), (1, 0, 0), (0, 0, 0)]


async def test_searches_are_bounded(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_SEARCHES", 1)
    await checked.get("e1", "e2", leaf=1)
    [true] = await checked.get("e3", leaf=4)
    await checked.pull(GrowingTree().grow("x", "y", "z", true))
    assert [await checked.check(LATER) for _ in range(2)] == [(1, 1, 0), (0, 1, 0)], "others do not wait for them"


async def test_a_false_hint_has_the_leaves_of_later_trees_searched_once(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []

    def find(conn: Connection, tree: int, leaf: bytes, *, after: int = 0) -> int | None:
        searched.append(after)
        return find_hash(conn, tree, leaf, after=after)

    monkeypatch.setattr(checking, "find_hash", find)
    await checked.get("forged", leaf=10**14)
    await checked.get("another", leaf=10**14)
    await checked.pull(following := GrowingTree("u").grow(*map(str, range(299))))
    assert [await checked.check(LATER + number * LONGEST_WAIT) for number in range(3)] == [(0, 0, 0)] * 3
    assert searched == [0, 0]
    await checked.pull(following.grow("299"))
    await checked.check(LATER + 3 * LONGEST_WAIT)
    assert searched == [0, 0, 300, 300]


async def test_what_another_process_has_checked_is_not_counted_twice(checked: Checked) -> None:
    await checked.pull(GrowingTree().grow(*await checked.get("e1", leaf=1)))
    step = await checked.step(NOW)
    assert await checked.check() == (1, 0, 0)
    counts = await checked.log.database.write(keep_checked, checked.topic, step.rows, NOW)
    assert not any(counts.verdicts.values())


async def test_a_row_that_grew_meanwhile_stays_due(checked: Checked) -> None:
    bodies = await checked.get("e1", leaf=1)
    await checked.pull(tree := GrowingTree().grow(*bodies))
    step = await checked.step(NOW)
    bodies = await checked.get("e2", leaf=2)
    await checked.log.database.write(keep_checked, checked.topic, step.rows, NOW)
    await checked.pull(tree.grow(*bodies))
    assert await checked.rows() == [(1, NOW)]
    assert await checked.check() == (1, 0, 0)


async def test_batches_of_a_node_that_only_records_are_not_due(checked: Checked) -> None:
    await emit(checked.log, checked.topic, "e1", path="a,hub")
    place = [LeafPlace(1, 1, TREE)]
    await checked.log.database.write(keep_hints, checked.topic, place, [1], [1])
    assert await checked.rows() == [(0, None)]
    assert (await checked.step(NOW + DAY)).rows == []


async def test_a_hub_that_invents_events_does_not_use_up_the_findings_about_the_tree(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.log.witnesses.findings.MOST_FINDINGS", 2)
    await checked.get("e1", "e2", "e3", leaf=1)
    await checked.pull(tree := GrowingTree().grow("x", "y", "z"))
    assert await checked.check(LATER) == (0, 3, 0)
    fork = NewFinding(str(tree.origin), "a", FindingKind.FORK, 1, 1, "", "", "")
    assert await checked.log.database.write(keep_finding, checked.topic, fork, NOW)
    assert sorted(await checked.found()) == [("fork", "a"), ("refuted", "hub"), ("refuted", "hub")]
    assert len(await checked.log.database.read(read_refuted_at, checked.topic, [1, 2, 3])) == 3, "each is marked"


async def test_records_that_were_evicted_are_passed_over(checked: Checked) -> None:
    await checked.get("e1", leaf=1)
    await checked.log.database.write(execute, "DELETE FROM blocks")
    assert await checked.check() == (0, 0, 0)
    assert await checked.rows() == [(1, None)]
