"""The trees of a log: which records get leaves, what is sealed, when a tree ends, and what is never signed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.log.core.blocks import Block
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.core.scan import scan
from eventd.log.core.topic_row import read_topic_by_id
from eventd.log.cursors.cursors import create_cursor
from eventd.log.history import seal
from eventd.log.history.open_tree import close_tree, open_tree
from eventd.log.history.seal import Hashed, hash_new, store_checkpoint
from eventd.log.history.trees import (
    DAY,
    HOUR,
    StoredCheckpoint,
    Tree,
    delete_checkpoints,
    find_open_tree,
    read_checkpoint_of,
    read_surplus_checkpoints,
    read_tree,
    tile_reader,
)
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.retention.waiting import RetentionWait, RetentionWaits, is_sealing_awaited
from eventd.log.topics.deleted_topics import clear_deleted, delete_topic
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW, draft
from federation.history.checkpoints import open_checkpoint, read_origin
from federation.history.entries import OpeningReason, PreviousTree, read_opening_entry
from federation.history.notes import LOG_KEY, read_note, read_vkey
from federation.history.proof_file import LeafProof, ProofFile, check_proof
from federation.history.tiles import inclusion_proof
from tests.support import plain_history as plain
from tests.support.histories import OWNER, emit, seal_now, signed, start

OTHER_KEY = OWNER._replace(private=Ed25519PrivateKey.from_private_bytes(b"2" * 32))


async def blocks(log: EventLog, topic: int) -> list[Block]:
    return await log.database.read(lambda conn: [*scan(conn, topic, 0, 10**6)])


async def tree_now(log: EventLog, topic: int) -> Tree | None:
    return await log.database.read(find_open_tree, topic)


async def trouble(log: EventLog, tree: Tree) -> str:
    return (await log.database.read(read_tree, tree.id)).trouble


def entries_of(tree: Tree, stored: list[Block]) -> list[bytes]:
    """The entries of a tree by the definition: its opening, then the digests of its records in order of position."""
    bodies = [body for block in stored if block.tree == tree.id for body in block.bodies()]
    return [tree.opening, *(b"\x01" + plain.digest(body.encode()) for body in bodies)]


async def test_own_records_get_leaves_in_order_of_position(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await emit(log, topic, "before")
    _, tree = await start(log)
    await emit(log, topic, "a", "b")
    await emit(log, topic, "from-b", path="site-b")
    await emit(log, topic, "c", "a")  # the second "a" is a duplicate
    found = [(block.position, block.records, block.tree, block.leaf) for block in await blocks(log, topic)]
    assert found == [(1, 1, None, None), (2, 2, tree.id, 1), (4, 1, None, None), (5, 1, tree.id, 3)]


async def test_a_checkpoint_has_the_root_of_the_definition_for_any_cut(log: EventLog) -> None:
    topic, tree = await start(log)
    sizes = []
    for count in (1, 3, 250, 2, 300, 1):
        await emit(log, topic, *(f"{len(sizes)}-{number}" for number in range(count)))
        stored = await signed(log, topic)
        entries = entries_of(tree, await blocks(log, topic))
        assert (stored.size, stored.root) == (len(entries), plain.root(entries))
        assert plain.open_checkpoint(stored.note.encode(), tree.log_key, []) == (stored.size, stored.root, {})
        sizes.append(stored.size)
    assert sizes == [2, 5, 255, 257, 557, 558]
    assert await log.database.read(hash_new, topic) is None


async def test_one_checkpoint_covers_a_bounded_number_of_leaves(log: EventLog) -> None:
    topic, _ = await start(log)
    for part in range(3):
        await emit(log, topic, *(f"{part}-{number}" for number in range(40)))
    hashed = await log.database.read(hash_new, topic, 50)
    assert hashed is not None
    assert (hashed.size, hashed.behind) == (81, 40), "whole blocks, and the opening entry"
    await log.database.write(store_checkpoint, hashed, OWNER, NOW)
    assert (await signed(log, topic)).size == 121


async def test_an_event_is_proven_by_a_file_from_the_stored_tiles(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, *(f"e{number}" for number in range(300)))
    stored = await signed(log, topic)
    [body, *_] = [block.bodies()[5] for block in await blocks(log, topic)]

    def prove(conn: Connection) -> ProofFile:
        read = tile_reader(conn, tree.id)
        leaf = LeafProof(6, tuple(inclusion_proof(6, stored.size, read)), read_note(stored.note.encode()))
        opening = tuple(inclusion_proof(0, stored.size, read))
        return ProofFile(plain.digest(body.encode()), body, leaf, tree.opening, opening)

    file = await log.database.read(prove)
    proven = check_proof(file.encode(), [read_vkey(tree.log_key, LOG_KEY)])
    assert (proven.event and proven.event.id, proven.index, proven.checkpoint.size) == ("e5", 6, 301)


async def test_the_first_tree_names_no_other_and_is_signed_by_its_key(log: EventLog) -> None:
    topic, tree = await start(log)
    opening = read_opening_entry(tree.opening).opening
    assert (opening.reason, opening.previous, opening.position) == (OpeningReason.FIRST, None, 1)
    assert str(opening.origin) == tree.origin
    assert opening.key.text() == tree.log_key
    stored = await signed(log, topic)
    assert stored.size == 1, "also without events a tree is not empty"
    assert open_checkpoint(read_note(stored.note.encode()), opening.key).root == stored.root


async def test_a_start_continues_the_tree(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a")
    stored = await signed(log, topic)
    again = (await start(log))[1]
    assert (again.id, again.size) == (tree.id, stored.size)


async def test_of_two_sealers_one_stores(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a")
    first, second = [await log.database.read(hash_new, topic) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert await log.database.write(store_checkpoint, first, OWNER, NOW) is not None
    assert await log.database.write(store_checkpoint, second, OWNER, NOW) is None
    assert await trouble(log, tree) == ""


async def test_a_new_epoch_opens_a_tree_that_takes_over_what_has_no_checkpoint(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a", "b")
    last = await signed(log, topic)
    await emit(log, topic, "c", "d")
    await log.database.write(renew_epoch)
    assert await seal_now(log, topic) is None, "the tree is not continued"
    following = (await start(log))[1]
    opening = read_opening_entry(following.opening).opening
    previous = PreviousTree(read_origin(tree.origin), last.size, last.root)
    assert (opening.reason, opening.previous, opening.position) == (OpeningReason.EPOCH, previous, 3)
    await emit(log, topic, "e")
    stored = await signed(log, topic)
    entries = entries_of(following, await blocks(log, topic))
    assert (stored.size, stored.root) == (4, plain.root(entries))


async def test_another_key_opens_a_tree(log: EventLog) -> None:
    topic, tree = await start(log)
    last = await signed(log, topic)
    following = (await start(log, OTHER_KEY))[1]
    entry = read_opening_entry(following.opening)
    assert entry.opening.reason is OpeningReason.KEY
    assert entry.opening.previous == PreviousTree(read_origin(tree.origin), last.size, last.root)
    assert not entry.is_signed_by(read_vkey(tree.log_key, LOG_KEY)), "the old key is not here"


async def test_a_tree_without_a_checkpoint_has_no_successor(log: EventLog) -> None:
    topic, _ = await start(log)
    await emit(log, topic, "a")
    following = (await start(log, OTHER_KEY))[1]
    assert read_opening_entry(following.opening).opening.reason is OpeningReason.FIRST
    assert (await seal_now(log, topic, OTHER_KEY)) is not None
    found = [(block.tree, block.leaf) for block in await blocks(log, topic)]
    assert found == [(following.id, 1)]


async def test_a_node_of_another_name_begins_anew(log: EventLog) -> None:
    topic, _ = await start(log)
    await signed(log, topic)
    following = (await start(log, OWNER._replace(node="site-z")))[1]
    assert read_opening_entry(following.opening).opening.reason is OpeningReason.FIRST


def flip_bit(conn: Connection, tree: Tree) -> None:
    [(hashes,)] = fetch(conn, "SELECT hashes FROM tiles WHERE tree = ? AND level = 0", (tree.id,))
    changed = bytes([bytes(hashes)[0] ^ 1]) + bytes(hashes)[1:]
    execute(conn, "UPDATE tiles SET hashes = ? WHERE tree = ? AND level = 0", (changed, tree.id))


def cut_tile(conn: Connection, tree: Tree) -> None:
    execute(conn, "UPDATE tiles SET hashes = ? WHERE tree = ? AND level = 0", (bytes(31), tree.id))


def drop_tile(conn: Connection, tree: Tree) -> None:
    execute(conn, "DELETE FROM tiles WHERE tree = ?", (tree.id,))


@pytest.mark.parametrize(
    ("damage", "found"),
    [(cut_tile, "has 31 bytes"), (drop_tile, r"tile/0/000\.p/3 is not stored")],
)
async def test_a_damaged_tile_ends_the_tree(
    log: EventLog, damage: Callable[[Connection, Tree], None], found: str
) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a", "b")
    last = await signed(log, topic)
    await log.database.write(damage, tree)
    await emit(log, topic, "c")
    assert await seal_now(log, topic) is None
    assert plain.re.search(found, await trouble(log, tree))
    assert await log.database.read(hash_new, topic) is None, "nothing more is sealed in it"
    opening = read_opening_entry((following := (await start(log))[1]).opening).opening
    assert (opening.reason, opening.previous) == (
        OpeningReason.DAMAGE,
        PreviousTree(read_origin(tree.origin), last.size, last.root),
    )
    assert (await signed(log, topic)).root == plain.root(entries_of(following, await blocks(log, topic)))


async def test_a_flipped_bit_of_a_sealed_leaf_is_not_signed_over(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a", "b")
    await signed(log, topic)
    await log.database.write(flip_bit, tree)
    await emit(log, topic, "c")
    assert await seal_now(log, topic) is None
    assert "size 3 have root" in await trouble(log, tree)


async def test_tiles_are_read_back_before_they_are_signed(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, tree = await start(log)
    await emit(log, topic, *(f"e{number}" for number in range(300)))
    write = seal.write_tiles

    def write_wrong(conn: Connection, tree_id: int, tiles: dict[seal.TileAddress, bytes]) -> None:
        write(conn, tree_id, {tile: bytes([hashes[0] ^ 1]) + hashes[1:] for tile, hashes in tiles.items()})

    monkeypatch.setattr(seal, "write_tiles", write_wrong)
    assert await seal_now(log, topic) is None
    assert "have root" in await trouble(log, tree)


async def test_a_full_tile_is_read_back_as_well(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, tree = await start(log)
    await emit(log, topic, *(f"e{number}" for number in range(300)))
    write = seal.write_tiles

    def write_wrong(conn: Connection, tree_id: int, tiles: dict[seal.TileAddress, bytes]) -> None:
        write(conn, tree_id, tiles)
        execute(conn, "UPDATE tiles SET hashes = ? WHERE tree = ? AND level = 0 AND number = 0", (bytes(8192), tree_id))

    monkeypatch.setattr(seal, "write_tiles", write_wrong)
    assert await seal_now(log, topic) is None
    assert "tile/0/000 has root" in await trouble(log, tree)


async def test_a_text_that_changes_while_it_is_sealed_is_not_signed(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, *(f"e{number}" for number in range(40)))
    hashed = await log.database.read(hash_new, topic)
    assert hashed is not None
    assert [position for position, _ in hashed.checked] == [32], "one leaf in 32, and not the opening entry"
    rewrite = "UPDATE blocks SET text = replace(text, '\"e31\"', '\"x31\"')"
    await log.database.write(execute, rewrite)
    assert await log.database.write(store_checkpoint, hashed, OWNER, NOW) is None
    assert "position 32 changed between two reads" in await trouble(log, tree)


async def test_a_record_that_was_removed_before_it_was_sealed_ends_the_tree(log: EventLog) -> None:
    topic, tree = await start(log)
    for name in ("a", "b", "c"):
        await emit(log, topic, name)
    await signed(log, topic)
    for name in ("d", "e", "f"):
        await emit(log, topic, name)
    await log.database.write(execute, "DELETE FROM blocks WHERE position = 5")
    assert await seal_now(log, topic) is None
    assert "leaf 5 has no record: position 6 has leaf 6" in await trouble(log, tree)
    following = (await start(log))[1]
    stored = await signed(log, topic)
    assert (stored.size, stored.root) == (3, plain.root(entries_of(following, await blocks(log, topic))))


async def test_a_seal_that_does_not_commit_gives_the_same_bytes_again(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a")
    hashed = await log.database.read(hash_new, topic)
    assert hashed is not None
    lost: list[StoredCheckpoint | None] = []

    def fail(conn: Connection, hashed: Hashed) -> None:
        lost.append(store_checkpoint(conn, hashed, OWNER, NOW))
        raise RuntimeError("killed before the commit")

    with pytest.raises(RuntimeError):
        await log.database.write(fail, hashed)
    assert await tree_now(log, topic) == tree
    assert [await signed(log, topic)] == lost


class EndingDriver:
    """A driver that fails at a statement of a transaction, the `at`-th: there the process of a sealer may be killed."""

    def __init__(self, driver: Any, at: int) -> None:
        self._driver = driver
        self._left = at

    def __getattr__(self, name: str) -> Any:
        if name in ("execute", "executemany", "cursor"):
            self._left -= 1
            if not self._left:
                raise RuntimeError("killed")
        return getattr(self._driver, name)


async def ends_at(log: EventLog, at: int, act: Callable[..., object], *args: object) -> bool:
    """Whether an act has a statement `at`: then nothing of it is done."""

    def run(conn: Connection) -> None:
        whole, conn.driver = conn.driver, EndingDriver(conn.driver, at)
        try:
            act(conn, *args)
        finally:
            conn.driver = whole

    try:
        await log.database.write(run)
    except RuntimeError:
        return True
    return False


async def test_a_sealer_that_is_killed_at_any_statement_leaves_everything_as_it_was(log: EventLog) -> None:
    topic, _ = await start(log)

    def rows(conn: Connection) -> list[Any]:
        tables = ("trees", "tiles", "checkpoints", "blocks", "topics")
        return [sorted(map(repr, fetch(conn, f"SELECT * FROM {table}"))) for table in tables]

    async def act(act: Callable[..., object], *args: object) -> int:
        before, at = await log.database.read(rows), 1
        while await ends_at(log, at, act, *args):
            assert await log.database.read(rows) == before
            at += 1
        assert await log.database.read(rows) != before
        return at

    await emit(log, topic, *(f"e{number}" for number in range(300)))
    assert await act(store_checkpoint, await log.database.read(hash_new, topic), OWNER, NOW) > 5
    await emit(log, topic, "moves")
    assert await act(open_tree, topic, OTHER_KEY, NOW) > 5
    assert await act(store_checkpoint, await log.database.read(hash_new, topic), OTHER_KEY, NOW) > 5
    tree = await tree_now(log, topic)
    assert tree is not None
    kept = await log.database.read(read_checkpoint_of, tree.id)
    assert kept is not None
    assert (kept.size, kept.root) == (2, plain.root(entries_of(tree, await blocks(log, topic))))
    assert await act(close_tree, topic) > 1


async def test_retention_keeps_what_has_no_checkpoint(log: EventLog) -> None:
    topic, _ = await start(log)
    nothing = EvictionLimits(max_records=0, keep_undelivered=False)
    await emit(log, topic, "a", "b")
    await signed(log, topic)
    await emit(log, topic, "c")
    assert (await log.database.write(evict, topic, nothing, now=NOW)).upto_seq == 2
    assert (await log.database.write(evict, topic, nothing, now=NOW)).records == 0
    await signed(log, topic)
    assert (await log.database.write(evict, topic, nothing, now=NOW)).upto_seq == 3


def read_wait(conn: Connection, topic: int, limits: EvictionLimits, now: int) -> RetentionWait:
    return RetentionWaits().read(conn, read_topic_by_id(conn, topic), limits, now)


async def test_what_retention_waits_for_is_shown_by_reason(log: EventLog) -> None:
    topic, _ = await start(log)
    limits = EvictionLimits(max_records=1)

    async def waits(limits: EvictionLimits = limits, now: int = NOW) -> RetentionWait:
        wait = await log.database.read(read_wait, topic, limits, now)
        assert await log.database.read(is_sealing_awaited, topic, limits, now) == (wait.sealing > 0)
        return wait

    await emit(log, topic, "a", "b")
    await log.append(topic, [draft("of-another-node", node="p", path="p")])
    await emit(log, topic, "c", "d")
    assert await waits() == RetentionWait(sealing=4), "a, b, of-another-node and c"
    assert await waits(EvictionLimits()) == RetentionWait()
    assert await waits(EvictionLimits(max_age=1), NOW + 2) == RetentionWait(sealing=5)
    await signed(log, topic)
    assert await waits() == RetentionWait()
    await emit(log, topic, "e")
    await log.database.write(create_cursor, "peer:g/b", kind="peer", topic_id=topic, position=2, now=NOW)
    assert await waits() == RetentionWait(peers=2), "c and d; the event of the other node is not kept for peers"
    assert await waits(EvictionLimits(max_records=1, keep_undelivered=False)) == RetentionWait()
    assert await waits(EvictionLimits(max_records=0)) == RetentionWait(peers=3, sealing=1)
    await log.database.write(evict, topic, limits, now=NOW)
    assert await waits() == RetentionWait(peers=2), "what could be removed is gone"


async def test_retention_waits_for_leaves_after_a_block_that_a_new_tree_did_not_take_over(log: EventLog) -> None:
    topic, _ = await start(log)
    await emit(log, topic, "a")
    await signed(log, topic)
    for name in ("b", "c", "d"):
        await emit(log, topic, name)
    await log.database.write(execute, "UPDATE blocks SET text = '\n' WHERE position = 2")
    assert await seal_now(log, topic) is None, "the leaf of b has no record"
    await start(log)
    found = [(block.position, block.leaf) for block in await blocks(log, topic)]
    assert found == [(1, 1), (2, None), (3, 1), (4, 2)]
    limits = EvictionLimits(max_records=1)
    assert (await log.database.read(read_wait, topic, limits, NOW)).sealing == 1, "c"
    assert await log.database.read(is_sealing_awaited, topic, limits, NOW)


async def test_a_block_that_retention_cut_keeps_the_leaves_of_its_rest(log: EventLog) -> None:
    topic, tree = await start(log)
    await emit(log, topic, "a", "b", "c")
    await signed(log, topic)
    await log.database.write(evict, topic, EvictionLimits(max_records=1, keep_undelivered=False), now=NOW)
    assert [(block.position, block.tree, block.leaf) for block in await blocks(log, topic)] == [(3, tree.id, 3)]


async def test_old_checkpoints_are_thinned_and_the_last_one_stays(log: EventLog) -> None:
    _, tree = await start(log)
    hour = NOW // HOUR * HOUR
    of_hours = [hour - 100 * DAY + seconds * SECOND for seconds in (0, 1, 90)]
    of_minutes = [hour - 3 * DAY + seconds * SECOND for seconds in (0, 1, 90)]
    for size, at in enumerate([*of_hours, *of_minutes, hour - 2, hour - 1], 1):
        row = (tree.id, size, bytes(32), "", at)
        await log.database.write(execute, "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", row)
    for limit in (1, 100):
        while surplus := await log.database.read(read_surplus_checkpoints, NOW, limit):
            assert len(surplus) <= limit
            assert await log.database.write(delete_checkpoints, surplus) == len(surplus)
    sizes = await log.database.read(fetch, "SELECT size FROM checkpoints ORDER BY size")
    assert [size for (size,) in sizes] == [3, 5, 6, 7, 8]


async def test_a_tree_is_closed_after_its_last_record_is_sealed(log: EventLog) -> None:
    topic, _ = await start(log)
    await emit(log, topic, "a")
    assert not await log.database.write(close_tree, topic)
    await signed(log, topic)
    assert await log.database.write(close_tree, topic)
    assert await tree_now(log, topic) is None
    await emit(log, topic, "b")
    assert [block.leaf for block in await blocks(log, topic)] == [1, None]


async def test_nothing_is_left_of_the_trees_of_a_deleted_group(log: EventLog) -> None:
    topic, _ = await start(log)
    await emit(log, topic, "a")
    await signed(log, topic)
    await emit(log, topic, "b")
    await log.database.write(delete_topic, "group:g")
    step = await log.database.write(clear_deleted, now=NOW)
    while step is not None:
        step = await log.database.write(clear_deleted, step.upto, now=NOW)
    for table in ("trees", "tiles", "checkpoints", "blocks"):
        assert await log.database.read(fetch, f"SELECT count(*) FROM {table}") == [(0,)], table
