"""Proves an event from the lake: the leaf and its path follow from the rows of its node, as the node shipped them.

The database of the node need not exist any more. The file that results is checked like any other, with keys that its
reader knows: what was changed in the lake does not lead to a root that the node signed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from eventd.errors import CheckFailed, NotFound
from eventd.lake.extra import pyarrow
from eventd.lake.history_rows import HistoryKind, read_hash_row
from eventd.lake.reader import read_segment, survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from federation.digest import digest
from federation.errors import HistoryError, MalformedHistory
from federation.event import UNSET, Event, encode, from_micros, micros
from federation.history.checkpoints import read_checkpoint
from federation.history.entries import OPENING_ENTRY, event_entry
from federation.history.merkle import hash_leaf
from federation.history.notes import SignedNote, read_note
from federation.history.proof_file import LeafProof, ProofFile
from federation.history.proofs import verify_inclusion
from federation.history.tiles import TILE_WIDTH, TileAddress, inclusion_proof

_FOUND: Final = ("id", "group", "own", "tree", "leaf", "number", "recorded_at")
_LEAVES: Final = ("group", "tree", "leaf", "digest")
_SIGNED: Final = "\n— "
"""Begins each signature line of a note."""


class _Signed(NamedTuple):
    """A checkpoint of a tree."""

    size: int
    root: bytes
    note: SignedNote


@dataclass(slots=True)
class _ShippedTree:
    """What the lake has of a tree, without its leaves: `hashes` by level and index."""

    opening: bytes = b""
    checkpoints: list[_Signed] = field(default_factory=list)
    hashes: defaultdict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))


def prove_from_lake(
    storage: Storage, event_id: str, *, group: str = "", first: bool = False, with_event: bool = True
) -> ProofFile:
    """Return the proof file of an event, of its latest record or the `first` one.

    Raises NotFound if no node of the lake admitted the event, CheckFailed if it cannot be proven, and LakeUnavailable.
    """
    segments = [one for one in survey(storage).segments if one.place.book in (Ledger.EVENTS, Ledger.HISTORY)]
    found = [*_records(storage, segments, event_id, group)]
    if not found:
        raise NotFound(
            f"no node in the lake at {storage.url} has admitted an event {event_id}",
            hint="the lake has the events that nodes shipped since it was made, until its retention",
        )
    proven = [one for one in found if one["leaf"] is not None]
    if not proven:
        raise CheckFailed(
            f"the event {event_id} has no leaf: its group kept no history when it was stored",
            hint="set history.mode: record in the EventGroup; events that are emitted from then on can be proven",
        )
    row = min(proven, key=_age) if first else max(proven, key=_age)
    own = [one for one in segments if one.manifest.node == row["node"]]
    tree = _read_tree(storage, own, row["tree"])
    return _prove(storage, own, row, tree, with_event=with_event)


def _age(row: Mapping[str, Any]) -> Any:
    return row["recorded_at"], row["number"]


def _records(storage: Storage, segments: Iterable[Segment], event_id: str, group: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of the nodes that admitted an event; damaged segments are left out."""
    from pyarrow import compute

    for segment in (one for one in segments if one.place.book is Ledger.EVENTS):
        try:
            table = read_segment(storage, segment, _FOUND)
        except BadSegment:
            continue
        wanted = compute.and_(compute.equal(table["id"], event_id), table["own"])
        for row in table.filter(wanted).to_pylist():
            if group in ("", row["group"]):
                yield row | {"node": segment.manifest.node, "segment": segment}


def _read_tree(storage: Storage, segments: Iterable[Segment], name: str) -> _ShippedTree:
    tree = _ShippedTree()
    for segment in (one for one in segments if one.place.book is Ledger.HISTORY):
        try:
            rows = read_segment(storage, segment).to_pylist()
        except BadSegment:
            continue
        for row in (row for row in rows if row["tree"] == name):
            with suppress(HistoryError):  # a row that was changed proves nothing, and others may prove the event
                _add_row(tree, row)
    return tree


def _add_row(tree: _ShippedTree, row: Mapping[str, Any]) -> None:
    match row["kind"]:
        case HistoryKind.OPENING:
            tree.opening = OPENING_ENTRY + row["content"].encode()
        case HistoryKind.HASHES if row["first"] is not None:
            tree.hashes[row["level"]].update(enumerate(read_hash_row(row["content"]), row["first"]))
        case HistoryKind.CHECKPOINT | HistoryKind.WITNESSED:
            note = read_note(row["content"].encode())
            stated = read_checkpoint(note.text)
            tree.checkpoints.append(_Signed(stated.size, stated.root, note))


def _prove(
    storage: Storage, segments: Sequence[Segment], row: Mapping[str, Any], tree: _ShippedTree, *, with_event: bool
) -> ProofFile:
    index = row["leaf"]
    covering = [one for one in tree.checkpoints if one.size > index]
    if not covering or not tree.opening:
        raise CheckFailed(
            f"leaf {index} of the tree {row['tree']} of {row['node']} is in no checkpoint in the lake",
            hint="try again when the node has shipped; the audit reports a node that does not seal",
        )
    signed = max(covering, key=lambda one: (one.note.encode().decode().count(_SIGNED), -one.size))
    reader = _LeafReader(storage, segments, row, tree, {leaf // TILE_WIDTH for leaf in (0, index, signed.size)})
    whole = _event_of(storage, row)
    text = whole or b""
    found = digest(text) if whole is not None else reader.digest_of(index)
    try:
        path = inclusion_proof(index, signed.size, reader)
        verify_inclusion(hash_leaf(event_entry(found)), index, signed.size, path, signed.root)
        opened = inclusion_proof(0, signed.size, reader)
        verify_inclusion(hash_leaf(tree.opening), 0, signed.size, opened, signed.root)
    except HistoryError as error:
        raise CheckFailed(
            f"leaf {index} of the tree {row['tree']} of {row['node']} cannot be proven from the lake: {error.message}",
            hint="audit the lake: routerctl audit run names what was removed or changed",
        ) from None
    leaf = LeafProof(index, tuple(path), signed.note)
    event = text.decode() if with_event and whole is not None else None
    return ProofFile(found, event, leaf, tree.opening, tuple(opened))


def _event_of(storage: Storage, row: Mapping[str, Any]) -> bytes | None:
    """Return the canonical text of an event; None if the lake does not have its payload, or another one."""
    table = read_segment(storage, row["segment"])
    (full,) = table.filter(_is_number(table, row["number"])).to_pylist()
    if full["payload"] is None or full["dedupe_key"] == "":
        return None
    try:
        payload = msgspec.json.decode(full["payload"])
    except (msgspec.DecodeError, RecursionError):
        return None
    expires = full["expires_at"]
    event = Event(
        id=full["id"],
        group=full["group"],
        source_node=full["source"],
        type=full["type"],
        subject=full["subject"],
        dedupe_key=full["id"] if full["dedupe_key"] is None else full["dedupe_key"],
        payload=payload,
        observed_at=from_micros(micros(full["event_at"])),
        expires_at=UNSET if expires is None else from_micros(micros(expires)),
    )
    text = encode(event)
    return text if digest(text) == full["digest"] else None


def _is_number(table: Any, number: int) -> Any:
    from pyarrow import compute

    return compute.equal(table["number"], number)


class _LeafReader:
    """Reads tiles of a tree: some of level 0 from the rows of its node, the others from the hashes that it shipped."""

    def __init__(
        self,
        storage: Storage,
        segments: Sequence[Segment],
        row: Mapping[str, Any],
        tree: _ShippedTree,
        tiles: Collection[int],
    ) -> None:
        self._tiles = [*tiles]
        self._storage = storage
        self._segments = [one for one in segments if one.place.book is Ledger.EVENTS and one.manifest.leaves]
        self._name = row["tree"]
        self._tree = tree
        self._digests: dict[int, bytes] | None = None

    def __call__(self, address: TileAddress) -> bytes:
        begin = address.number * TILE_WIDTH
        wanted = range(begin, begin + address.width)
        found = [self._hash(address.level, at) for at in wanted]
        missing = next((at for at, one in zip(wanted, found, strict=True) if one is None), None)
        if missing is not None:
            raise MalformedHistory(f"hash {missing} of level {address.level} is not in the lake", reason="tile_missing")
        return b"".join(one for one in found if one is not None)

    def digest_of(self, index: int) -> bytes:
        """Return the digest of the event with a leaf."""
        return self._all()[index]

    def _hash(self, level: int, at: int) -> bytes | None:
        known = self._tree.hashes.get(level, {}).get(at)
        if level or known is not None:
            return known
        if at == 0:
            return hash_leaf(self._tree.opening)
        found = self._all().get(at)
        return None if found is None else hash_leaf(event_entry(found))

    def _all(self) -> dict[int, bytes]:
        """Return the digests of the events with a leaf in one of the tiles, by index."""
        if self._digests is None:
            self._digests = {}
            for segment in self._segments:
                self._digests.update(self._read(segment))
        return self._digests

    def _read(self, segment: Segment) -> Iterator[tuple[int, bytes]]:
        from pyarrow import compute

        try:
            table = read_segment(self._storage, segment, _LEAVES)
        except BadSegment:
            return
        names = table["tree"].cast("string")
        near = compute.is_in(compute.divide(table["leaf"], TILE_WIDTH), pyarrow().array(self._tiles))
        rows = table.filter(compute.fill_null(compute.and_(compute.equal(names, self._name), near), False))
        yield from zip(rows["leaf"].to_pylist(), rows["digest"].to_pylist(), strict=True)
