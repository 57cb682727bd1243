"""What lies in a lake, and what is wrong with it. Only what has a manifest counts, and every trouble is a value."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from eventd.errors import NotFound
from eventd.lake.coverage import Span, choose, holes
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.layout import (
    ARCHIVE,
    DATA,
    LANDING,
    MANIFEST,
    NODES,
    Place,
    is_state,
    landing,
    parse_name,
    parse_place,
    slug,
    state_path,
)
from eventd.lake.manifest import Head, Manifest, NodeState, Unreadable, decode
from eventd.lake.schema import Book, arrow_schema
from eventd.lake.storage import Entry, Storage, open_lake
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet_type


class TroubleKind(StrEnum):
    """What can be wrong with a lake."""

    CORRUPT = "corrupt"  # rows are missing or cannot be trusted: nothing that touches them can be called complete
    EPOCHS = "epochs"  # a node has begun a new history: it was restored from a back-up, or set up anew
    TWO_NODES = "two nodes"  # two databases ship under one name at the same time


class Trouble(NamedTuple):
    """One thing that is wrong. `name` is of a segment, as it is or would be called, or the path of a state.

    It concerns the numbers in (after, upto] of `book`; a trouble of a whole node has no book and no numbers. An EPOCHS
    or TWO_NODES trouble is of the later epoch; `message` tells the other, and the times.
    """

    kind: TroubleKind
    node: str
    epoch: str
    book: Book | None
    name: str
    after: int
    upto: int
    message: str


class Survey(NamedTuple):
    """A lake at one moment: the states of its nodes, the segments that count, each row in one of them, and troubles."""

    head: Head
    nodes: Sequence[NodeState]
    segments: Sequence[Segment]
    troubles: Sequence[Trouble]


class _Key(NamedTuple):
    """A book of one node and epoch; the node as a slug."""

    slug: str
    epoch: str
    book: Book


class _Bad(NamedTuple):
    """A segment that does not count, and why."""

    place: Place
    message: str

    @property
    def after(self) -> int:
        return self.place.after

    @property
    def upto(self) -> int:
        return self.place.upto


class _Shelf:
    """The segments of one book, good and bad."""

    def __init__(self) -> None:
        self.good: list[Segment] = []
        self.bad: list[_Bad] = []


def survey(storage: Storage) -> Survey:
    """Look at a whole lake, but into no file.

    Raises NotFound where there is no lake, LakeUnusable for one of another schema, LakeUnavailable.
    """
    head = open_lake(storage)
    # In this order what is being shipped and compacted meanwhile cannot look like a loss: states promise less than
    # there is by the time segments are listed, and what is gone from the landing has long been in the archive.
    states, troubles = _read_states(storage)
    shelves = _read_shelves(storage, [*storage.list(LANDING), *storage.list(ARCHIVE)])
    segments: list[Segment] = []
    known = {(slug(state.node), state.epoch) for state in states}
    names = {slug(state.node): state.node for state in states}
    reaches = {
        _Key(slug(s.node), s.epoch, book): Span(r.after, r.upto) for s in states for book, r in s.segments.items()
    }
    for key in sorted({*shelves, *reaches}):
        shelf = shelves.get(key) or _Shelf()
        node = names.get(key.slug) or next((one.manifest.node for one in shelf.good), key.slug)
        chosen = choose(shelf.good)
        segments += chosen
        # Where a node says nothing at all, whatever lies there is taken for a promise; where it does, what it has not
        # promised yet is being written, up to the last segment that is whole.
        shown: list[Segment | _Bad] = [*chosen] if (key.slug, key.epoch) in known else [*chosen, *shelf.bad]
        troubles += _troubles_of(key, node, shelf, chosen, _join(reaches.get(key), shown))
    troubles += [_stateless(*one) for one in sorted({(key.slug, key.epoch) for key in shelves} - known)]
    return Survey(head, states, segments, [*troubles, *_histories(states)])


class StateFile(NamedTuple):
    """A node's state as it lies in a lake; the node as a slug. `state`: why it is none, where it cannot be read."""

    path: str
    slug: str
    epoch: str
    state: NodeState | Unreadable


def state_files(storage: Storage) -> Iterator[StateFile]:
    """The states of all nodes and epochs, by path. Raises LakeUnavailable."""
    paths = [entry.path for entry in storage.list(NODES) if is_state(entry.path)]
    for path, text in sorted(storage.read_many(paths).items()):
        _, node, epoch = path.removesuffix(MANIFEST).split("/")
        try:
            yield StateFile(path, node, epoch, decode_state(text, node, epoch))
        except Unreadable as error:
            yield StateFile(path, node, epoch, error)


def decode_state(text: bytes, slug_: str, epoch: str) -> NodeState:
    """The state of the node with this slug. Raises Unreadable, also for that of another node or epoch."""
    state = decode(text, NodeState)
    if (slug(state.node), state.epoch) != (slug_, epoch):
        raise Unreadable("is of another node or epoch than its name says")
    return state


def read_state(storage: Storage, node: str, epoch: str) -> NodeState | None:
    """The state of a node; None where there is none that can be read. Raises LakeUnavailable."""
    path = state_path(node, epoch)
    try:
        return decode_state(storage.read_many([path]).get(path, b""), slug(node), epoch)
    except Unreadable:
        return None


def _read_states(storage: Storage) -> tuple[list[NodeState], list[Trouble]]:
    states, troubles = [], []
    for file in state_files(storage):
        if isinstance(file.state, NodeState):
            states.append(file.state)
        else:
            told = f"the state of the node {file.state}: how far its books are is not known"
            troubles.append(Trouble(TroubleKind.CORRUPT, file.slug, file.epoch, None, file.path, 0, 0, told))
    return states, troubles


def _stateless(node: str, epoch: str) -> Trouble:
    path = f"{NODES}/{node}/{epoch}.json"  # `node` is a slug
    told = "the state of the node is missing: how far its books are is not known"
    return Trouble(TroubleKind.CORRUPT, node, epoch, None, path, 0, 0, told)


def _read_shelves(storage: Storage, entries: Sequence[Entry]) -> dict[_Key, _Shelf]:
    sizes: dict[str, int] = {}
    places: dict[str, Place] = {}
    manifests: set[str] = set()
    for path, size in entries:
        if (place := parse_place(path)) is None:
            continue
        places[place.name] = place
        if path.endswith(DATA):
            sizes[place.name] = size
        else:
            manifests.add(place.name)
    texts = storage.read_many([places[name].manifest for name in sorted(manifests)])
    shelves: defaultdict[_Key, _Shelf] = defaultdict(_Shelf)
    replaced: set[str] = set()
    for name, place in sorted(places.items()):
        shelf = shelves[_Key(place.slug, place.epoch, place.book)]
        text = texts.get(place.manifest)
        if text is None and name in manifests:
            continue  # removed since it was listed: whatever took its place is listed, too
        found = _judge(place, text, sizes.get(name))
        if isinstance(found, _Bad):
            shelf.bad.append(found)
        else:
            shelf.good.append(found)
            replaced.update(found.manifest.replaces)
    for shelf in shelves.values():
        shelf.good = [one for one in shelf.good if one.place.name not in replaced]
        shelf.bad = [one for one in shelf.bad if one.place.name not in replaced]
    return dict(shelves)


def _judge(place: Place, text: bytes | None, size: int | None) -> Segment | _Bad:
    """A segment, or why it is none."""
    if text is None:
        return _Bad(place, "its manifest is missing")
    try:
        manifest = decode(text, Manifest)
    except Unreadable as error:
        return _Bad(place, f"its manifest {error}")
    if (manifest.book, slug(manifest.node), manifest.epoch, manifest.after, manifest.upto) != (
        *(place.book, place.slug, place.epoch),
        *(place.after, place.upto),
    ):
        return _Bad(place, "its manifest is of another segment")
    if (name := _beyond(place, manifest.replaces)) is not None:
        return _Bad(place, f"its manifest replaces {name}, which is not its own")
    if size is None:
        return _Bad(place, "its file is missing")
    if size != manifest.bytes:
        return _Bad(place, f"its file has {size} bytes, and had {manifest.bytes} when it was written")
    return Segment(place, manifest)


def _beyond(place: Place, replaced: Sequence[str]) -> str | None:
    """A name that a segment may not replace: the archive alone replaces, segments of the landing within its range."""
    for name in replaced:
        other = parse_name(name)
        if (
            place.tree != ARCHIVE
            or other is None
            or (other.tree, other.book, other.slug, other.epoch) != (LANDING, place.book, place.slug, place.epoch)
            or not place.after <= other.after <= other.upto <= place.upto
        ):
            return name
    return None


def _join(promised: Span | None, shown: Sequence[Segment | _Bad]) -> Span | None:
    """What was promised, and what lies beyond: segments are written one after the other."""
    if not shown:
        return promised
    after = min(one.after for one in shown) if promised is None else promised.after
    return Span(after, max([one.upto for one in shown] + ([] if promised is None else [promised.upto])))


def _troubles_of(
    key: _Key, node: str, shelf: _Shelf, chosen: Sequence[Segment], promised: Span | None
) -> Iterator[Trouble]:
    """What is missing of the numbers that should be there."""
    present: list[Segment | _Bad] = [*chosen, *shelf.bad]
    if promised is None:
        return
    for bad in shelf.bad:
        # What lies beyond is being written, what lies before is being removed.
        if bad.after < promised.upto and bad.upto > promised.after and holes(chosen, Span(bad.after, bad.upto)):
            yield _corrupt(key, node, bad.place.name, bad, bad.message)
    for hole in holes(present, promised):
        name = landing(key.book, node, key.epoch, hole.after, hole.upto, at=0).name
        yield _corrupt(key, node, name.rpartition("/")[2], hole, "no segment holds these numbers")


def _corrupt(key: _Key, node: str, name: str, span: Span | _Bad, message: str) -> Trouble:
    return Trouble(TroubleKind.CORRUPT, node, key.epoch, key.book, name, span.after, span.upto, message)


def _histories(states: Sequence[NodeState]) -> Iterator[Trouble]:
    """Nodes that have several epochs. One of them must have ended before the next began."""
    by_node: defaultdict[str, list[NodeState]] = defaultdict(list)
    for state in states:
        by_node[state.node].append(state)
    for node, epochs in sorted(by_node.items()):
        for before, after in pairwise(sorted(epochs, key=lambda state: state.began_at)):
            kind, told = TroubleKind.EPOCHS, "a new history"
            if before.as_of > after.began_at:
                kind, told = TroubleKind.TWO_NODES, "two nodes under one name"
            span = f"epoch {before.epoch} from {_iso(before.began_at)} to {_iso(before.as_of)}"
            message = f"{told}: {span}, and epoch {after.epoch} since {_iso(after.began_at)}"
            yield Trouble(kind, node, after.epoch, None, state_path(node, after.epoch), 0, 0, message)


def _iso(micros: int) -> str:
    return datetime.fromtimestamp(micros // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class BadSegment(Exception):
    """A segment is not what its manifest says; the text, which reads on after its name, says why."""


def read_segment(storage: Storage, segment: Segment, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a segment, or some columns of them.

    Raises as `open_segment`, and BadSegment for rows of another node or epoch, where `node` or `epoch` are among the
    columns: a node must not speak for another.
    """
    table = open_segment(storage, segment).read(columns)
    for name, own in (("node", segment.manifest.node), ("epoch", segment.manifest.epoch)):
        chunks = table[name].chunks if name in table.column_names else ()
        for chunk in chunks:
            if chunk.dictionary.to_pylist() != [own] and chunk.unique().to_pylist() not in ([own], []):
                raise BadSegment(f"its rows are of another {name} than its manifest")
    return table


def open_segment(storage: Storage, segment: Segment) -> parquet_type.ParquetFile:
    """The Parquet file of a segment, in memory, after its size and digest were checked.

    Raises BadSegment and LakeUnavailable.
    """
    place, manifest = segment
    try:
        data = storage.read(place.data)
    except NotFound:
        raise BadSegment("its file is missing") from None
    if (size := len(data)) != manifest.bytes:
        raise BadSegment(f"its file has {size} bytes, and had {manifest.bytes} when it was written")
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise BadSegment("its file has another content than when it was written")
    file = parquet().ParquetFile(pyarrow().BufferReader(data))
    if not file.schema_arrow.equals(arrow_schema(place.book)):
        raise BadSegment("its file has other columns than the book")
    if (rows := file.metadata.num_rows) != manifest.rows:
        raise BadSegment(f"its file has {rows} rows, and its manifest says {manifest.rows}")
    return file
