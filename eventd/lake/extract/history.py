"""The ledger `history`: the trees of this node, as far as they are sealed.

Trees grow apart from the log, so what was sealed has no number of its own. All rows of one extract have the number up
to which it reaches: the position up to which each record that gets a leaf has a checkpoint. So a later extract begins
with the first leaf that this one does not cover.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from eventd.lake.extract.result import Extract, no_rows
from eventd.lake.extract.scope import Scope
from eventd.lake.history_rows import MOST_HASHES, HistoryKind, write_hashes
from eventd.lake.schema import Ledger
from eventd.log.history.trees import StoredCheckpoint, first_position, read_checkpoint_of, tile_reader
from eventd.log.witnesses.decisions import MOST_ORIGINS
from eventd.log.witnesses.findings import read_forks
from eventd.log.witnesses.witnessed import read_news
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.errors import HistoryError, MalformedHistory
from federation.history.checkpoints import read_checkpoint, read_origin
from federation.history.notes import read_note
from federation.history.tiles import MAX_LEVEL, TILE_HEIGHT, TILE_WIDTH, TileAddress, read_hashes

_TREES: Final = "SELECT id, topic_id, origin, opening, opened_at, size, position FROM trees WHERE epoch <> ''"
_OPEN: Final = (
    "SELECT topics.id, trees.origin, topics.next_leaf > trees.size, trees.position, topics.evicted_position"
    " FROM topics JOIN trees ON trees.id = topics.tree"
)


class _Tree(NamedTuple):
    """A tree. `size` and `position` are those of its last checkpoint."""

    id: int
    topic_id: int
    origin: str
    opening: bytes
    opened_at: int
    size: int
    position: int

    @property
    def name(self) -> str:
        """Return its id in ledgers."""
        return read_origin(self.origin).tree


def read_tree_names(conn: Connection) -> dict[int, str]:
    """Return the id that each tree has in ledgers, by its id in the database."""
    return {row[0]: read_origin(row[1]).tree for row in fetch(conn, "SELECT id, origin FROM trees WHERE epoch <> ''")}


def read_open_trees(conn: Connection) -> dict[int, str]:
    """Return the tree in which the next own records of a topic get leaves, by the id of the topic."""
    return {row[0]: read_origin(row[1]).tree for row in fetch(conn, _OPEN)}


def read_sealed(conn: Connection, places: Scope) -> int:
    """Return the position up to which each record with a leaf has a checkpoint; 0 for a node that never had a tree."""
    if not _has_trees(conn, places):
        return 0
    lagging = [position for topic, _, lags, position, _ in fetch(conn, _OPEN) if lags and topic in places.topics]
    return int(min([*lagging, places.last]))


def _has_trees(conn: Connection, places: Scope) -> bool:
    """Return whether the node has, or has witnessed, a tree of one of these groups."""
    known = fetch(conn, "SELECT topic_id FROM trees UNION SELECT topic_id FROM witnessed")
    return any(topic_id in places.topics for (topic_id,) in known)


def read_history(conn: Connection, places: Scope, after: int) -> Extract:
    """Return what was sealed of the trees in these places since an extract that reached up to `after`."""
    columns, upto = no_rows(Ledger.HISTORY), max(after, read_sealed(conn, places))
    if upto > after:
        for row in chain(_rows(conn, places, after), _witnessed(conn, places, after)):
            for name, values in columns.items():
                values.append(upto if name == "number" else row.get(name))
    return Extract(Ledger.HISTORY, after, upto, columns, full=False)


def _rows(conn: Connection, places: Scope, after: int) -> Iterator[Mapping[str, Any]]:
    for tree in _read_trees(conn):
        place, signed = places.topics.get(tree.topic_id), read_checkpoint_of(conn, tree.id)
        if place is not None and signed is not None and tree.position > after:
            kept = {"node": place.node, "epoch": places.epoch, "group": place.group, "tree": tree.name}
            for row in _rows_of(conn, tree, signed, after):
                yield kept | {"recorded_at": signed.signed_at} | row


def _witnessed(conn: Connection, places: Scope, after: int) -> Iterator[Mapping[str, Any]]:
    """Yield what was witnessed since the last record at or before a position was stored."""
    sql = "SELECT max(recorded_at) FROM blocks WHERE position = (SELECT max(position) FROM blocks WHERE position <= ?)"
    ((since,),) = fetch(conn, sql, (after,))
    for topic_id, place in places.topics.items():
        kept = {"node": place.node, "epoch": places.epoch, "group": place.group, "kind": HistoryKind.WITNESSED}
        news = read_news(conn, topic_id, (since or 0) - 1, "", MOST_ORIGINS)
        notes = [(tree.note, tree.witnessed_at) for tree in news]
        for found in read_forks(conn, topic_id, since or 0):
            notes += [(note, found.found_at) for note in (found.note, found.other_note) if note]
        for note, at in notes:
            try:
                stated = read_checkpoint(read_note(note.encode()).text)
            except HistoryError:  # an opening entry that names another root: what a peer sends must stop no shipping
                continue
            yield kept | {"tree": stated.origin.tree, "size": stated.size, "content": note, "recorded_at": at}


def _rows_of(conn: Connection, tree: _Tree, signed: StoredCheckpoint, after: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one tree: its opening, if it is new, new hashes, the lowest level first, and a checkpoint."""
    first = _leaves_before(conn, tree, after)
    if first == 0:
        note, position = tree.opening[1:].decode(errors="replace"), first_position(tree.opening)
        yield {
            "kind": HistoryKind.OPENING,
            "position": position,
            "content": note,
            "recorded_at": tree.opened_at,
        }
    for begin, end in _lost_leaves(conn, tree, max(first, 1), signed.size, after):
        yield from _hashes(conn, tree, signed.size, 0, begin, end)
    for level in range(1, MAX_LEVEL + 1):
        shift = level * TILE_HEIGHT
        yield from _hashes(conn, tree, signed.size, level, first >> shift, signed.size >> shift)
    yield {
        "kind": HistoryKind.CHECKPOINT,
        "size": signed.size,
        "position": tree.position,
        "content": signed.note,
    }


def _hashes(conn: Connection, tree: _Tree, size: int, level: int, begin: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield rows with the hashes from index `begin` to before `end` of a level, at most `MOST_HASHES` in each.

    Tiles that are damaged or removed are left out: the checkpoint remains, and with it the doubt.
    """
    read = tile_reader(conn, tree.id)
    while begin < end:
        number, offset = divmod(begin, TILE_WIDTH)
        stop = min(end, begin - offset + MOST_HASHES)
        width = min((size >> level * TILE_HEIGHT) - number * TILE_WIDTH, TILE_WIDTH)
        address = TileAddress(level, number, width)
        try:
            some = read_hashes(read(address), address)[offset : offset + stop - begin]
        except MalformedHistory:
            some = []
        if some:
            content = write_hashes(b"".join(some))
            yield {"kind": HistoryKind.HASHES, "level": level, "first": begin, "content": content}
        begin = stop


def _leaves_before(conn: Connection, tree: _Tree, after: int) -> int:
    """Return how many leaves of a tree are of records up to the position `after`; 0 if its opening is later, too."""
    begin = first_position(tree.opening)
    sql = (
        "SELECT leaf, position, records FROM blocks WHERE topic_id = ? AND tree = ? AND position >= ? AND position <= ?"
        " ORDER BY position DESC LIMIT 1"
    )  # from the tree's opening on: the blocks before it may be all of the log
    for leaf, position, records in fetch(conn, sql, (tree.topic_id, tree.id, begin, after)):
        return int(leaf + min(after - position + 1, records))
    if begin > after or _evicted(conn, tree) > after:
        return 0  # nothing was shipped, or it is not known any more what was: all hashes are shipped again
    sql = "SELECT leaf FROM blocks WHERE topic_id = ? AND tree = ? AND position > ? ORDER BY position LIMIT 1"
    rows = fetch(conn, sql, (tree.topic_id, tree.id, after))
    return int(rows[0][0]) if rows else tree.size


def _lost_leaves(conn: Connection, tree: _Tree, first: int, size: int, after: int) -> Iterator[tuple[int, int]]:
    """Yield the leaves from `first` on whose records were deleted, if some after this position were."""
    if _evicted(conn, tree) <= after:
        return
    sql = "SELECT leaf, records FROM blocks WHERE topic_id = ? AND tree = ? AND leaf + records > ? ORDER BY leaf"
    for leaf, records in fetch(conn, sql, (tree.topic_id, tree.id, first)):
        if first < min(leaf, size):
            yield first, min(leaf, size)
        first = max(first, leaf + records)
    if first < size:
        yield first, size


def _evicted(conn: Connection, tree: _Tree) -> int:
    ((position,),) = fetch(conn, "SELECT evicted_position FROM topics WHERE id = ?", (tree.topic_id,))
    return int(position)


def _read_trees(conn: Connection) -> list[_Tree]:
    return [_Tree(*row) for row in fetch(conn, f"{_TREES} ORDER BY id")]
