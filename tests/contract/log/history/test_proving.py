"""What a database proves of its trees, checked with the second implementation; and why it cannot prove the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eventd.errors import Invalid
from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import close_tree
from eventd.log.history.proving import (
    ConsistencyProof,
    EventLeaf,
    NotProven,
    find_leaf,
    prove_consistency,
    prove_event,
)
from eventd.log.history.trees import StoredCheckpoint, Tree, read_tree
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from federation.history.proof_file import ProofFile
from tests.support import plain_history as plain
from tests.support.histories import emit, signed, start


async def grow(log: EventLog, *counts: int) -> tuple[int, Tree, list[StoredCheckpoint]]:
    """A tree with a checkpoint after each of these numbers of events."""
    topic, tree = await start(log)
    made = []
    for part, count in enumerate(counts):
        await emit(log, topic, *(f"e{part}-{number}" for number in range(count)))
        made.append(await signed(log, topic))
    return topic, tree, made


async def prove(log: EventLog, topic: int, position: int, size: int | None = None) -> ProofFile:
    def read(conn: Connection) -> ProofFile:
        return prove_event(conn, find_leaf(conn, topic, position), size=size)

    return await log.database.read(read)


async def refused(log: EventLog, topic: int, position: int) -> NotProven:
    with pytest.raises(NotProven) as caught:
        await prove(log, topic, position)
    return caught.value


async def consistency(log: EventLog, tree: Tree, old: int, new: int | None = None) -> ConsistencyProof:
    def read(conn: Connection) -> ConsistencyProof:
        return prove_consistency(conn, read_tree(conn, tree.id), old, new)

    return await log.database.read(read)


def judge(tree: Tree, file: ProofFile) -> tuple[int, int]:
    """The index and the size of the tree, of a file that the second implementation accepts."""
    _, index, size, _ = plain.open_file(file.encode(), tree.log_key, [])
    return index, size


async def test_each_event_is_proven_in_the_last_checkpoint_and_in_every_other_that_covers_it(log: EventLog) -> None:
    topic, tree, made = await grow(log, 1, 3, 255, 2)
    sizes = [one.size for one in made]
    for position in (1, 2, 4, 5, 255, 256, 259, 261):
        assert judge(tree, await prove(log, topic, position)) == (position, sizes[-1])
        for size in sizes:
            if size > position:
                assert judge(tree, await prove(log, topic, position, size)) == (position, size)


async def test_a_file_may_leave_the_event_out(log: EventLog) -> None:
    topic, tree, _ = await grow(log, 2)

    def read(conn: Connection) -> tuple[EventLeaf, ProofFile]:
        leaf = find_leaf(conn, topic, 2)
        return leaf, prove_event(conn, leaf, with_event=False)

    leaf, file = await log.database.read(read)
    digest, *_ = plain.open_file(file.encode(), tree.log_key, [])
    assert b"e0-1" not in file.encode()
    assert digest == plain.digest(leaf.body.encode())


async def test_the_checkpoint_with_the_most_signatures_proves_an_event(log: EventLog) -> None:
    topic, tree, made = await grow(log, 1, 1, 1)
    text, _ = plain.open_note(made[1].note.encode(), [])
    note = made[1].note + plain.signature_line(text, "eventd/g/b/witness", 4, bytes(32), 7)
    await log.database.write(execute, "UPDATE checkpoints SET note = ? WHERE size = ?", (note, made[1].size))
    witness = plain.vkey("eventd/g/b/witness", 4, bytes(32))
    cosigned = plain.open_file((await prove(log, topic, 1)).encode(), tree.log_key, [witness])
    assert cosigned[1:] == (1, 3, {witness: 7})
    assert judge(tree, await prove(log, topic, 3)) == (3, 4), "the cosigned one does not cover it"


async def test_consistency_is_proven_between_all_sizes(log: EventLog) -> None:
    _, tree, made = await grow(log, 1, 3, 255, 2)
    by_size = {one.size: one for one in made}
    for old in (1, 2, 4, 5, 256, 257, 260, 262):
        for new in (size for size in (5, 257, 260, 262) if size >= old):
            proof = await consistency(log, tree, old, new)
            known = by_size[old].root if old in by_size else proof.old_root
            assert plain.roots_by_proof(old, new, proof.hashes, known) == (proof.old_root, proof.new_root)
            assert proof.notes == [by_size[size] for size in sorted({old, new}) if size in by_size]
    assert (await consistency(log, tree, 2)).new == 262, "by default up to the last checkpoint"


@pytest.mark.parametrize("sizes", [(0, 2), (3, 2), (1, 4), (-1, 2)])
async def test_sizes_that_are_not_sealed_are_refused(log: EventLog, sizes: Sequence[int]) -> None:
    _, tree, _ = await grow(log, 2)
    with pytest.raises(Invalid, match="the sealed tree has size 3"):
        await consistency(log, tree, *sizes)


async def test_an_event_is_not_proven_before_its_checkpoint(log: EventLog) -> None:
    topic, _, _ = await grow(log, 1)
    await emit(log, topic, "new")
    error = await refused(log, topic, 2)
    assert error.reason == "unsealed"
    assert "leaf 2 of eventd/g/site-a/" in error.message
    await signed(log, topic)
    assert (await prove(log, topic, 2)).leaf.index == 2


async def test_events_without_a_leaf_say_why(log: EventLog) -> None:
    topic, _, _ = await grow(log, 1)
    await emit(log, topic, "from-b", path="site-b")
    assert (await refused(log, topic, 2)).reason == "other_node"
    await log.database.write(close_tree, topic)
    await emit(log, topic, "after")
    assert (await refused(log, topic, 3)).reason == "no_leaf"
    assert (await refused(log, topic, 99)).reason == "evicted"
    other = await log.topic("group:other")
    assert (await refused(log, other, 1)).reason == "evicted", "a position belongs to one topic"


async def test_a_rewritten_event_is_not_proven(log: EventLog) -> None:
    topic, tree, made = await grow(log, 3)
    await log.database.write(execute, "UPDATE blocks SET text = replace(text, '\"e0-1\"', '\"x0-1\"')")
    error = await refused(log, topic, 2)
    assert error.reason == "damaged"
    assert all(part in error.message for part in (tree.origin, "leaf 2", made[0].root.hex()))
    assert (await prove(log, topic, 1)).leaf.index == 1, "the others are"


async def test_a_missing_tile_is_named(log: EventLog) -> None:
    topic, tree, _ = await grow(log, 300)
    await log.database.write(execute, "DELETE FROM tiles WHERE level = 0 AND number = 0")
    error = await refused(log, topic, 3)
    assert (error.reason, "tile/0/000 is not stored" in error.message) == ("pruned", True)
    with pytest.raises(NotProven, match="is not stored"):
        await consistency(log, tree, 200)


async def test_a_changed_tile_proves_no_consistency(log: EventLog) -> None:
    _, tree, made = await grow(log, 2, 3)
    await log.database.write(execute, "UPDATE tiles SET hashes = ? WHERE level = 0", (bytes(32 * 6),))
    with pytest.raises(NotProven, match=made[0].root.hex()) as caught:
        await consistency(log, tree, 3)
    assert caught.value.reason == "damaged"


async def test_a_checkpoint_that_is_not_stored_is_named(log: EventLog) -> None:
    topic, _, _ = await grow(log, 1, 4)
    with pytest.raises(NotProven, match="no checkpoint of size 4"):
        await prove(log, topic, 1, 4)
    with pytest.raises(Invalid, match="leaf 3 is not in the checkpoint of size 2"):
        await prove(log, topic, 3, 2)
