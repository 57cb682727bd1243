"""Which tiles are pruned, and that everything above a cut is proven as before, on a tree of four cuts."""

from __future__ import annotations

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.history import pruning
from eventd.log.history.open_tree import TreeOwner
from eventd.log.history.proving import NotProven, prove_consistency, prove_opening, require_checkpoint
from eventd.log.history.pruning import KEPT, SurplusTiles, TileLimits, delete_tiles, find_surplus
from eventd.log.history.trees import DAY, Tree, read_tree, tile_bytes, tile_reader, write_tiles
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from eventd.testing import NOW
from federation.history.checkpoints import Checkpoint, read_origin, sign_checkpoint
from federation.history.merkle import hash_leaf, hash_perfect
from federation.history.proofs import verify_inclusion
from federation.history.tiles import TileAddress, TileBuilder, inclusion_proof
from tests.support.histories import OWNER, emit, start

CUT = pruning.CUT
SIZE = 4 * CUT + 300
NO_LIMIT = 1 << 60
LEAF = hash_leaf(b"x")


@pytest.fixture(scope="module")
def tiles() -> list[tuple[TileAddress, bytes]]:
    """Tiles of a tree whose leaves are equal but the first, which a tree gets from its opening."""
    builder = TileBuilder()
    return [*builder.extend([LEAF] * SIZE).items()]


async def grown(log: EventLog, tiles: list[tuple[TileAddress, bytes]]) -> tuple[int, Tree]:
    """A tree of `SIZE` leaves without events, a checkpoint a day, each with one cut more, the last one now."""
    topic, tree = await start(log)

    def fill(conn: Connection) -> Tree:
        opened = with_opening(dict(tiles), hash_leaf(tree.opening))
        write_tiles(conn, tree.id, opened)
        row = {"tree": tree.id, "root": bytes(32), "note": ""}
        for cut in range(1, 5):
            insert_row(conn, "checkpoints", row | {"size": cut * CUT, "signed_at": NOW - (4 - cut) * DAY - 1})
        read = tile_reader(conn, tree.id)
        builder = TileBuilder(SIZE, read)
        origin = read_origin(tree.origin)
        note = sign_checkpoint(Checkpoint(origin, SIZE, builder.root()), OWNER.signer(origin)).encode().decode()
        row |= {"size": SIZE, "root": builder.root(), "note": note, "signed_at": NOW}
        insert_row(conn, "checkpoints", row)
        execute(conn, "UPDATE trees SET size = ? WHERE id = ?", (SIZE, tree.id))
        return read_tree(conn, tree.id)

    return topic, await log.database.write(fill)


def with_opening(tiles: dict[TileAddress, bytes], opening: bytes) -> dict[TileAddress, bytes]:
    """The tiles with another first leaf."""
    first = opening
    for level in range(3):
        address = next(tile for tile in tiles if tile.level == level and tile.number == 0)
        tiles[address] = first + tiles[address][32:]
        first = (
            hash_perfect([tiles[address][at : at + 32] for at in range(0, len(tiles[address]), 32)])
            if level < 2
            else first
        )
    return tiles


async def prune(log: EventLog, topic: int, limits: TileLimits, now: int) -> list[SurplusTiles]:
    """Prune until nothing is over a limit; return what was deleted."""
    done = []
    while surplus := await log.database.read(find_surplus, topic, limits, now):
        assert await log.database.write(delete_tiles, surplus) > 0
        done.append(surplus)
    return done


async def test_tiles_go_30_days_after_their_events_and_the_rest_is_proven_as_before(
    log: EventLog, tiles: list[tuple[TileAddress, bytes]]
) -> None:
    topic, tree = await grown(log, tiles)
    by_age = TileLimits(NO_LIMIT, DAY)
    assert await prune(log, topic, by_age, NOW + KEPT - 3 * DAY) == []
    whole = await log.database.read(tile_bytes, tree)
    gone = await prune(log, topic, by_age, NOW + KEPT - 2 * DAY)
    assert gone == [SurplusTiles(tree.id, 1, 256)], "what was sealed 30 days before the events were evicted"
    assert await log.database.read(tile_bytes, tree) == whole - 255 * 8192

    def prove(conn: Connection) -> None:
        checkpoint, read = require_checkpoint(conn, tree), tile_reader(conn, tree.id)
        prove_opening(conn, tree, checkpoint)
        for leaf in (1, 255, CUT, CUT + 1, 2 * CUT - 1, SIZE - 1):
            verify_inclusion(LEAF, leaf, SIZE, inclusion_proof(leaf, SIZE, read), checkpoint.root)
        prove_consistency(conn, tree, 2 * CUT + 77)
        with pytest.raises(NotProven, match=r"tile/0/001\S* is not stored"):
            prove_consistency(conn, tree, 300)

    await log.database.read(prove)


async def test_tiles_of_stored_events_stay(log: EventLog, tiles: list[tuple[TileAddress, bytes]]) -> None:
    topic, tree = await grown(log, tiles)
    await emit(log, topic, "a")
    leaf = CUT + 5
    await log.database.write(execute, "UPDATE blocks SET leaf = ?, tree = ?", (leaf, tree.id))
    await log.database.write(execute, "UPDATE trees SET position = (SELECT max(position) FROM blocks)")
    late = NOW + 100 * DAY
    assert (await prune(log, topic, TileLimits(NO_LIMIT, None), late))[-1].end == 256


async def test_the_oldest_go_when_there_are_too_many_bytes(
    log: EventLog, tiles: list[tuple[TileAddress, bytes]]
) -> None:
    topic, _ = await grown(log, tiles)
    await prune(log, topic, TileLimits(3 * CUT * 32, None), NOW)
    ((least, count),) = await log.database.read(
        fetch, "SELECT min(number), count(*) FROM tiles WHERE level = 0 AND number > 0"
    )
    assert (least, count) == (512, 2 * 256 + 2), "whole cuts, so that it is under the limit"


async def test_tiles_wait_30_days_for_a_witness_that_is_behind(
    log: EventLog, tiles: list[tuple[TileAddress, bytes]]
) -> None:
    topic, tree = await grown(log, tiles)
    row = {
        "tree": tree.id,
        "peer": "b",
        "size": CUT + 1,
        "cosigned_at": NOW,
        "asked_at": NOW,
        "state": "",
        "detail": "",
    }
    await log.database.write(insert_row, "witnesses", row)
    assert (await prune(log, topic, TileLimits(0, None), NOW + DAY))[-1].end == 256
    assert (await prune(log, topic, TileLimits(0, None), NOW + KEPT + 1))[-1].end == 4 * 256


async def test_tiles_of_another_node_have_the_limits_for_themselves_and_do_not_age_without_one(
    log: EventLog, tiles: list[tuple[TileAddress, bytes]]
) -> None:
    topic, tree = await grown(log, tiles)
    await log.database.write(execute, "UPDATE trees SET epoch = ''")
    _, own = await start(log, TreeOwner("g", "site-b", OWNER.private))
    await log.database.write(execute, "UPDATE trees SET size = ? WHERE id = ?", (3 * CUT, own.id))
    limit = TileLimits(4 * CUT * 32, None)
    assert await prune(log, topic, limit, NOW + 100 * DAY) == []
    late = TileLimits(NO_LIMIT, DAY)
    assert {one.tree for one in await prune(log, topic, late, NOW + 100 * DAY)} == {tree.id}
