"""Proves an event from the lake: the leaf and its path follow from the rows of its node, as the node shipped them.

The database of the node need not exist any more. The file that results is checked like any other, with keys that its
reader knows: what was changed in the lake does not lead to a root that the node signed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from eventd.errors import CheckFailed, NotFound
from eventd.lake.extra import pyarrow
from eventd.lake.moved_leaves import LeafPlace, Trees, leaf_shifts, present_place
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.shipped_trees import ShippedCheckpoint, TreeName, TreeRows, read_tree_rows
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from federation.digest import digest
from federation.errors import HistoryError, MalformedHistory
from federation.event import UNSET, Event, encode, from_micros, micros
from federation.history.cosignatures import cosignature_times
from federation.history.entries import OPENING_ENTRY, OpeningEntry, event_entry
from federation.history.merkle import hash_leaf
from federation.history.notes import NoteKey
from federation.history.policy import Policy
from federation.history.proof_file import LeafProof, ProofFile
from federation.history.proofs import verify_inclusion
from federation.history.tiles import TILE_WIDTH, TileAddress, inclusion_proof

_FOUND: Final = ("id", "group", "own", "tree", "leaf", "number", "recorded_at", "digest")
_TEXT: Final = ("id", "group", "source", "type", "subject", "dedupe_key", "payload", "event_at", "expires_at")
"""What the canonical text of an event is made of."""
_LEAVES: Final = ("group", "own", "tree", "leaf", "digest")
_MOST_COMPARED: Final = 256
"""How many of the newest signed checkpoints are compared for the one with the most cosignatures."""


def prove_from_lake(
    storage: Storage,
    event_id: str,
    *,
    group: str = "",
    first: bool = False,
    with_event: bool = True,
    policy: Policy | None = None,
) -> ProofFile:
    """Return the proof file of an event, of its latest record or the `first` one.

    Its checkpoint is signed with the key that the file names. With a `policy`, that is a key of the policy, and the
    checkpoint the one with the most cosignatures of its witnesses; of several, the newest.

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
    return _prove(storage, own, row, read_tree_rows(storage, own), policy, with_event=with_event)


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


def _prove(
    storage: Storage,
    segments: Sequence[Segment],
    row: Mapping[str, Any],
    trees: Trees,
    policy: Policy | None,
    *,
    with_event: bool,
) -> ProofFile:
    place = present_place(trees, LeafPlace(TreeName(row["node"], row["tree"]), row["leaf"]))
    name, leaf = place
    where = f"leaf {leaf} of the tree {name.tree} of {name.node}"
    whole = _event_of(storage, row)
    found = row["digest"] if whole is None else digest(whole)
    event = whole.decode() if with_event and whole is not None else None
    fault = ""
    for opening, checkpoints in _candidates(trees.get(name, TreeRows()), place, policy, where):
        entry = OPENING_ENTRY + opening.note.encode()
        tiles = {at // TILE_WIDTH for at in (0, leaf, *(one.stated.size for one in checkpoints))}
        reader = LeafReader(storage, segments, entry, trees, name, tiles)
        for one in checkpoints:
            size, root = one.stated.size, one.stated.root
            try:
                path = inclusion_proof(leaf, size, reader)
                verify_inclusion(hash_leaf(event_entry(found)), leaf, size, path, root)
                opened = inclusion_proof(0, size, reader)
                verify_inclusion(hash_leaf(entry), 0, size, opened, root)
            except HistoryError as error:  # as where a hash is gone that others do not need
                fault = fault or error.message
                continue
            return ProofFile(found, event, LeafProof(leaf, tuple(path), one.note), entry, tuple(opened))
    raise CheckFailed(
        f"{where} cannot be proven from the lake: {fault}" if fault else f"{where} is in no checkpoint in the lake",
        hint="audit the lake: routerctl audit run names what was removed or changed"
        if fault
        else "try again when the node has shipped; the audit reports a node that does not seal",
    )


def _candidates(
    tree: TreeRows, place: LeafPlace, policy: Policy | None, where: str
) -> Iterator[tuple[OpeningEntry, list[ShippedCheckpoint]]]:
    """Yield the openings of a tree, each with the checkpoints that may prove a leaf, the best first.

    Raises CheckFailed if the policy knows the key of none.
    """
    known = None if policy is None else {key.public for key in policy.logs}
    openings = [one for one in tree.openings if known is None or one.opening.key.public in known]
    if tree.openings and not openings:
        raise CheckFailed(
            f"{where} cannot be proven: the policy has no key of its node",
            hint="get the key from the operator of the node, who prints it with `routerctl log keys`",
        )
    witnesses = [] if policy is None else [*policy.witnesses.values()]
    for opening in openings:
        covering = (one for one in tree.signed(opening) if one.stated.size > place.leaf)
        counted = [(_count_cosigned(one, witnesses), one) for one in islice(covering, _MOST_COMPARED)]
        best = sorted((pair for pair in counted if pair[0] >= 0), key=lambda pair: pair[0], reverse=True)
        yield opening, [one for _, one in best]


def _count_cosigned(checkpoint: ShippedCheckpoint, witnesses: Iterable[NoteKey]) -> int:
    """Return how many of these witnesses cosigned a checkpoint; -1 if a cosignature is wrong: then it proves nothing.

    Lines of others count for nothing: everyone who writes to the lake can add some.
    """
    try:
        return len(cosignature_times(checkpoint.note, witnesses))
    except HistoryError:
        return -1


def _event_of(storage: Storage, row: Mapping[str, Any]) -> bytes | None:
    """Return the canonical text of an event; None if the lake does not have its payload, or another one."""
    table = read_segment(storage, row["segment"], ("number", "digest", *_TEXT))
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


class LeafReader:
    """Reads tiles of a tree: some of level 0 from the rows of its node, the others from the hashes that it shipped."""

    def __init__(
        self,
        storage: Storage,
        segments: Sequence[Segment],
        opening: bytes,
        trees: Trees,
        name: TreeName,
        tiles: Collection[int],
    ) -> None:
        self._tiles = [*tiles]
        self._storage = storage
        self._segments = [one for one in segments if one.place.book is Ledger.EVENTS and one.manifest.leaves]
        self._opening = hash_leaf(opening)
        self._shipped = trees[name].hashes
        self._shifts = dict(leaf_shifts(trees, name))
        self._digests: dict[int, bytes] | None = None

    def __call__(self, address: TileAddress) -> bytes:
        begin = address.number * TILE_WIDTH
        wanted = range(begin, begin + address.width)
        found = [self._hash(address.level, at) for at in wanted]
        missing = next((at for at, one in zip(wanted, found, strict=True) if one is None), None)
        if missing is not None:
            raise MalformedHistory(f"hash {missing} of level {address.level} is not in the lake", reason="tile_missing")
        return b"".join(one for one in found if one is not None)

    def _hash(self, level: int, at: int) -> bytes | None:
        known = self._shipped.get(level, {}).get(at)
        if level or known is not None:
            return known
        if at == 0:
            return self._opening
        if self._digests is None:
            self._digests = {leaf: one for segment in self._segments for leaf, one in self._read(segment)}
        found = self._digests.get(at)
        return None if found is None else hash_leaf(event_entry(found))

    def _read(self, segment: Segment) -> Iterator[tuple[int, bytes]]:
        """Yield the index and the digest of each event with a leaf in one of the tiles."""
        from pyarrow import compute

        try:
            table = read_segment(self._storage, segment, _LEAVES)
        except BadSegment:
            return
        names = table["tree"].cast("string")
        for tree, (first, more) in self._shifts.items():
            leaf = compute.add(table["leaf"], more)
            near = compute.is_in(compute.divide(leaf, TILE_WIDTH), pyarrow().array(self._tiles))
            there = compute.and_(compute.equal(names, tree), compute.greater_equal(table["leaf"], first))
            wanted = compute.fill_null(compute.and_(compute.and_(there, near), table["own"]), False)
            yield from zip(leaf.filter(wanted).to_pylist(), table["digest"].filter(wanted).to_pylist(), strict=True)
