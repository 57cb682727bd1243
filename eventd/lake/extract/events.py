"""The event ledger: the events of groups in the log, block by block."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventd.lake.extract.block_columns import BlockColumns, Memory
from eventd.lake.extract.deliveries import taken
from eventd.lake.extract.history import read_tree_names
from eventd.lake.extract.result import Columns, EvictedRows, Extract, no_rows
from eventd.lake.extract.scope import LocalGroup, Scope
from eventd.lake.schema import Ledger
from eventd.log.core.blocks import COLUMNS, Block
from eventd.log.core.scan import BYTES_PER_READ
from eventd.log.history.hints import read_hints
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in
from federation.history.leaf_hints import LeafPlace

LOOKED_AT: Final = 2000
"""Maximum number of blocks that one extract looks at, including those of other topics."""
MOST_BYTES: Final = 32 << 20
"""Bytes of event bodies after which one extract ends."""
_HOLDING: Final = "coalesce((SELECT max(position) FROM blocks WHERE position <= ?), 0)"


class _Content(msgspec.Struct, rename="camel", gc=False):
    id: str
    dedupe_key: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"{}")


_CONTENTS: Final = msgspec.json.Decoder(_Content)


class _BlockSelection(NamedTuple):
    """The blocks to read as (position, bytes), the position that the extract reaches, and whether more may exist."""

    positions: Sequence[tuple[int, int]]
    upto: int
    full: bool


def read_events(conn: Connection, places: Scope, after: int, *, rows: int, payloads: bool, memory: Memory) -> Extract:
    """Read about `rows` events of the groups in `places` after the position `after`, up to the end of a block."""
    chosen = _choose(conn, places, after, rows)
    columns, trees = no_rows(Ledger.EVENTS), read_tree_names(conn)
    hints: dict[int, Sequence[LeafPlace]] = {}
    for block in _read(conn, chosen.positions):
        apart, place = memory.keep(block), places.topics[block.topic_id]
        within = range(max(0, after + 1 - block.position), block.records)
        _add(columns, apart, within, place, places.epoch)
        contents = _contents(block, within) if payloads else [(None, None)] * len(within)
        columns["payload"] += [payload for payload, _ in contents]
        columns["dedupe_key"] += [key for _, key in contents]
        if block.own:
            _add_leaves(columns, block, within, trees)
            continue
        if block.topic_id not in hints:
            hints[block.topic_id] = read_hints(conn, block.topic_id, after, chosen.upto)
        _add_hints(columns, block, within, hints[block.topic_id], {*trees.values()})
    return Extract(Ledger.EVENTS, after, chosen.upto, columns, chosen.full, _lost(conn, places, after, chosen.upto))


def _choose(conn: Connection, places: Scope, after: int, rows: int) -> _BlockSelection:
    sql = (
        f"SELECT position, topic_id, records, bytes FROM blocks WHERE position >= {_HOLDING}"
        " AND position + records - 1 > ? ORDER BY position LIMIT ?"
    )
    near = fetch(conn, sql, (after, after, LOOKED_AT))
    positions: list[tuple[int, int]] = []
    found = size = 0
    for position, topic_id, records, bytes_ in near:
        if topic_id in places.topics:
            positions.append((position, bytes_))
            found, size = found + records, size + bytes_
            if found >= rows or size >= MOST_BYTES:
                return _BlockSelection(positions, position + records - 1, full=True)
    if len(near) == LOOKED_AT:
        return _BlockSelection(positions, near[-1][0] + near[-1][2] - 1, full=True)
    return _BlockSelection(positions, max(after, places.last), full=False)


def _read(conn: Connection, positions: Sequence[tuple[int, int]]) -> Iterator[Block]:
    """Yield the blocks at these (position, bytes), in order, read about `BYTES_PER_READ` at a time."""
    portion: list[int] = []
    size = 0
    for position, bytes_ in positions:
        portion.append(position)
        size += bytes_
        if size > BYTES_PER_READ:
            yield from _load(conn, portion)
            portion, size = [], 0
    yield from _load(conn, portion)


def _load(conn: Connection, positions: Sequence[int]) -> Iterator[Block]:
    if positions:
        sql = f"SELECT {COLUMNS} FROM blocks WHERE position {{in}}"
        yield from sorted(map(Block._make, fetch_in(conn, sql, (), positions)))


def _add(columns: Columns, apart: BlockColumns, within: range, place: LocalGroup, epoch: str) -> None:
    block, size = apart.block, len(within)
    positions = [block.position + at for at in within]
    same: dict[str, Any] = {
        "node": place.node,
        "epoch": epoch,
        "group": place.group,
        "own": bool(block.own),
        "recorded_at": block.recorded_at,
    }
    each: dict[str, Sequence[Any]] = {
        "id": apart.ids,
        "source": apart.sources,
        "type": apart.types,
        "subject": apart.subjects,
        "path": apart.paths,
        "event_at": apart.event_at,
        "expires_at": apart.expires_at,
        "bytes": apart.sizes,
        "fingerprint": apart.fingerprints,
        "digest": apart.digests,
    }
    columns["number"] += positions
    columns["position"] += positions
    columns["seq"] += [at + block.seq - block.position for at in positions]
    for name, value in same.items():
        columns[name] += [value] * size
    for name, values in each.items():
        columns[name] += taken(values, within)


def _add_leaves(columns: Columns, block: Block, within: range, trees: Mapping[int, str]) -> None:
    """Add the leaves of the block's records, as the block has them now: a new tree may have taken them over."""
    leaf, tree = block.leaf, None if block.tree is None else trees.get(block.tree)
    columns["tree"] += [tree] * len(within)
    columns["leaf"] += [None] * len(within) if leaf is None or tree is None else [leaf + at for at in within]


def _add_hints(
    columns: Columns, block: Block, within: range, places: Sequence[LeafPlace], own: Collection[str]
) -> None:
    """Add the leaves that the senders of these records stated. None of them can be in an own tree of this node."""
    begin, end = block.position + within.start, block.position + within.stop
    at = bisect_right(places, begin, key=lambda place: place.position)
    while begin < end:
        stop = min(end, places[at].position) if at < len(places) else end
        tree, leaf = places[at - 1].at(begin) if at else ("", 0)
        known = bool(leaf) and tree not in own
        columns["tree"] += [tree if known else None] * (stop - begin)
        columns["leaf"] += range(leaf, leaf + stop - begin) if known else [None] * (stop - begin)
        begin, at = stop, at + 1


def _contents(block: Block, within: range) -> list[tuple[str | None, str | None]]:
    """Return the payload of each event, and its dedupe key if that is not its id."""
    bodies = block.bodies(within.start, within.stop)
    return [
        (bytes(each.payload).decode(), each.dedupe_key if each.dedupe_key != each.id else None)
        for each in _CONTENTS.decode_lines("\n".join(bodies))
    ]


def _lost(conn: Connection, places: Scope, after: int, upto: int) -> list[EvictedRows]:
    """Return a range for each group of which events were evicted before they were read."""
    rows = fetch(conn, "SELECT id, evicted_position FROM topics WHERE evicted_position > ?", (after,))
    return [
        EvictedRows(places.topics[topic_id].group, "", places.epoch, after, min(evicted, upto), 0, "events_lost")
        for topic_id, evicted in rows
        if topic_id in places.topics
    ]
