"""Hints at leaves in the log: what is stored of a batch, passed on with a page, and removed with the events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eventd.egress.peers.leaf_hints import LeafHints
from eventd.log.core.eventlog import EventLog
from eventd.log.delivery.selection import Selection
from eventd.log.history import relayed
from eventd.log.history.hints import find_hint, keep_hints
from eventd.log.history.relayed import RelayedCheckpoint, ask_tiles, check_tiles, find_relayed, keep_tiles
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.statements import fetch
from eventd.testing import NOW
from federation.history.checkpoints import read_origin
from federation.history.exchange import TilesAnswer
from federation.history.leaf_hints import LeafPlace, find_place, read_places
from tests.support import plain_history as plain
from tests.support.growing_tree import GrowingTree
from tests.support.histories import emit, start

TREE = "t" * 16


async def keep(log: EventLog, topic: int, places: Sequence[LeafPlace], sent: Sequence[int], first: int) -> None:
    stored = range(first, first + len(sent))
    await log.database.write(keep_hints, topic, places, sent, stored)


async def hinted(log: EventLog, topic: int, *positions: int) -> list[tuple[str, int]]:
    return [await log.database.read(find_hint, topic, position) for position in positions]


async def test_each_record_of_a_filtered_batch_keeps_the_leaf_that_its_sender_states(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await keep(log, topic, [LeafPlace(10, 4, TREE), LeafPlace(40, 0, "")], [10, 12, 13, 40], first=1)
    await keep(log, topic, [LeafPlace(50, 44, TREE)], [60], first=7)
    assert await hinted(log, topic, 1, 2, 3, 4) == [(TREE, 4), (TREE, 6), (TREE, 7), ("", 0)]
    assert await hinted(log, topic, 5, 7, 8) == [("", 0), (TREE, 54), ("", 0)]


async def test_batches_of_one_event_each_share_a_row_while_their_leaves_follow_each_other(log: EventLog) -> None:
    topic = await log.topic("group:g")
    for at, leaf in ((1, 4), (2, 5), (3, 6), (5, 8), (6, 7)):
        await keep(log, topic, [LeafPlace(at + 10, leaf, TREE)], [at + 10], first=at)
    assert await hinted(log, topic, 1, 2, 3, 4, 5, 6) == [
        (TREE, 4),
        (TREE, 5),
        (TREE, 6),
        ("", 0),
        (TREE, 8),
        (TREE, 7),
    ]
    assert await log.database.read(fetch, "SELECT position, upto FROM leaf_hints ORDER BY position") == [
        (1, 3),
        (5, 5),
        (6, 6),
    ]


async def test_places_without_a_leaf_are_not_stored(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await keep(log, topic, [LeafPlace(99, 4, TREE)], [1, 2], first=1)
    assert await log.database.read(fetch, "SELECT count(*) FROM leaf_hints") == [(0,)]


async def test_a_page_has_the_leaves_of_own_events_and_passes_on_those_of_others(log: EventLog) -> None:
    topic, tree = await start(log)
    own = read_origin(tree.origin).tree
    await emit(log, topic, "own1", "own2")
    await emit(log, topic, "from-a1", "from-a2", "from-a3", path="a")
    await keep(log, topic, [LeafPlace(7, 4, TREE)], [7, 8], first=3)
    await emit(log, topic, "own3")
    hints = LeafHints()

    async def header(after: int, *, relay: bool, until: int | None = None) -> list[tuple[str, int]]:
        wanted = Selection(relay=relay).wanted_by("c")
        page = await log.lines(topic, after, wanted, limit=10, max_bytes=1 << 20, until=until)
        places = read_places(await hints.hints_of(log, topic, page, after, own=not relay))
        return [find_place(places, position) for position in range(1, 8)]

    none = ("", 0)
    passed_on = [(own, 1), (own, 2), (TREE, 4), (TREE, 5), none, (own, 3)]
    assert (await header(0, relay=True))[:6] == passed_on
    assert (await header(3, relay=True, until=5))[3:5] == passed_on[3:5], "from the middle of a batch on"
    found = await header(0, relay=False)
    assert [found[at] for at in (0, 1, 5)] == [(own, 1), (own, 2), (own, 3)]


async def test_leaves_of_a_tree_that_may_be_an_older_copy_are_not_stated(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "own1")
    await emit(log, topic, "from-a1", path="a")
    await keep(log, topic, [LeafPlace(7, 4, TREE)], [7], first=2)
    await emit(log, topic, "own2")
    page = await log.lines(topic, 0, Selection(relay=True).wanted_by("c"), limit=10, max_bytes=1 << 20)
    hints = LeafHints()
    for unsettled, leaves in (({tree.id}, [0, 4, 0]), (set[int](), [1, 4, 2])):
        log.unsettled_trees = unsettled
        places = read_places(await hints.hints_of(log, topic, page, 0, own=False))
        assert [find_place(places, position)[1] for position in (1, 2, 3)] == leaves


async def test_a_page_of_a_group_without_a_history_has_no_hints(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await emit(log, topic, "x")
    page = await log.lines(topic, 0, Selection().wanted_by("c"), limit=10, max_bytes=1 << 20)
    assert page.leaves == []
    assert await LeafHints().hints_of(log, topic, page, 0, own=True) == ""


async def test_hints_go_with_the_last_event_of_their_batch(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await emit(log, topic, "x", "y", "z", path="a")
    await keep(log, topic, [LeafPlace(1, 1, TREE)], [1, 2], first=1)
    await keep(log, topic, [LeafPlace(1, 7, TREE)], [3], first=3)
    for left, rows in ((2, 2), (1, 1), (0, 0)):
        limits = EvictionLimits(max_records=left, keep_undelivered=False)
        await log.database.write(evict, topic, limits, now=NOW)
        assert await log.database.read(fetch, "SELECT count(*) FROM leaf_hints") == [(rows,)]


async def test_a_false_hint_costs_a_search_and_a_true_one_spares_it(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    tree = GrowingTree().grow("x", "y", "z")
    stated = tree.checkpoint()
    note = tree.note().encode().decode()
    due = RelayedCheckpoint(str(tree.origin), tree.signer.key.text(), stated.size, stated.root, note, NOW)
    asked = ask_tiles(due, None)
    hashes = b"".join(plain.digest(b"\0" + entry) for entry in tree.entries)
    answer = TilesAnswer(tiles=(plain.b64(hashes),), opening=tree.entries[0][1:].decode())
    await log.database.write(keep_tiles, topic, await log.database.read(check_tiles, due, None, asked, answer), NOW)

    async def find(hint: tuple[str, int]) -> int:
        found = await log.database.read(find_relayed, topic, "y", ["a"], hint)
        return found[1] if found else 0

    for false in (("t" * 16, 1), ("t" * 16, 255), ("t" * 16, 1 << 40), ("u" * 16, 2), ("", 0)):
        assert await find(false) == 2
    monkeypatch.setattr(relayed, "find_hash", lambda *_: None)
    assert await find((tree.origin.tree, 2)) == 2
