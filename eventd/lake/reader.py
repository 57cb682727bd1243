"""Surveys a lake, and reports its problems as values. Only files with a manifest count."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from eventd.lake.copies import copies
from eventd.lake.coverage import Span, choose, holes
from eventd.lake.file_sizes import MOST_JSON, larger
from eventd.lake.layout import (
    ARCHIVE,
    DATA,
    LANDING,
    MANIFEST,
    NODES,
    LedgerSlug,
    SegmentName,
    landing,
    parse_name,
    parse_path,
    slug,
    state_path,
)
from eventd.lake.listed_files import read_listed
from eventd.lake.manifest import LakeHead, Manifest, NodeState, Unreadable, decode
from eventd.lake.schema import Ledger
from eventd.lake.segment_checks import manifest_fault
from eventd.lake.state_files import state_files
from eventd.lake.storage import Storage, open_lake
from eventd.lake.stored_files import StoredFile
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND


class TroubleKind(StrEnum):
    """The kinds of problems of a lake."""

    CORRUPT = "corrupt"  # rows are missing or cannot be trusted: a result that involves them is incomplete
    EPOCHS = "epochs"  # a node began a new history: it was restored from a backup, or set up anew
    TWO_NODES = "two nodes"  # two databases ship under one name at the same time
    TWO_NAMES = "two names"  # one database, or a copy of it, ships one group under two names


class Trouble(NamedTuple):
    """One problem. `name` is the name of a segment (of a missing one, without its folder) or the path of a state.

    It concerns the row numbers in (after, upto] of the ledger `book`; for a problem of a whole node, `after` and
    `upto` are 0 and `book` is None. `node` is the slug if the name is unknown. `epoch` of EPOCHS and TWO_NODES
    problems is the later one; `message` names both and their times. `node` of TWO_NAMES is the name that was used
    later; `message` has both.
    """

    kind: TroubleKind
    node: str
    epoch: str
    book: Ledger | None
    name: str
    after: int
    upto: int
    message: str


class Survey(NamedTuple):
    """A lake at one moment: its head, the states of its nodes, segments that hold each row once, and problems.

    `digests` has the SHA-256 (hex) of each state and manifest, by path; also of those that cannot be decoded.
    `strays` are the paths of files in the folders of segments that do not have a segment's name. They do not count.
    """

    head: LakeHead
    nodes: Sequence[NodeState]
    segments: Sequence[Segment]
    troubles: Sequence[Trouble]
    digests: Mapping[str, str] = MappingProxyType({})
    strays: Sequence[str] = ()

    @property
    def node_names(self) -> dict[str, str]:
        """Return the names of the nodes that have a segment, by slug."""
        return {one.place.slug: one.manifest.node for one in self.segments}


class _InvalidSegment(NamedTuple):
    """A segment that does not count, and the reason."""

    place: SegmentName
    message: str

    @property
    def after(self) -> int:
        return self.place.after

    @property
    def upto(self) -> int:
        return self.place.upto


class _LedgerFiles:
    """The segments of one ledger, valid and invalid."""

    def __init__(self) -> None:
        self.good: list[Segment] = []
        self.bad: list[_InvalidSegment] = []


def survey(storage: Storage) -> Survey:
    """Survey a whole lake without opening data files.

    Raises NotFound if there is no lake, LakeUnusable if its head cannot be read, and LakeUnavailable.
    """
    head = open_lake(storage)
    # This order prevents that shipping or compaction at the same time looks like a loss: the states promise less than
    # the segments listed later, and what left the landing has long been in the archive.
    states, troubles, digests = _read_states(storage)
    entries = [*storage.list(LANDING), *storage.list(ARCHIVE)]
    ledgers, manifests = _read_ledgers(storage, entries)
    segments: list[Segment] = []
    known = {(slug(state.node), state.epoch) for state in states}
    damaged = {(trouble.node, trouble.epoch) for trouble in troubles}
    names = {slug(state.node): state.node for state in states}
    reaches = {
        LedgerSlug(slug(s.node), s.epoch, book): Span(r.after, r.upto) for s in states for book, r in s.segments.items()
    }
    for key in sorted({*ledgers, *reaches}):
        files = ledgers.get(key) or _LedgerFiles()
        node = names.get(key.slug) or next((one.manifest.node for one in files.good), key.slug)
        chosen = choose(files.good)
        segments += chosen
        # Without a state, every segment counts as promised. With a state, so do the valid segments beyond its promise:
        # the node has written them since.
        shown: list[Segment | _InvalidSegment] = [*chosen] if (key.slug, key.epoch) in known else [*chosen, *files.bad]
        troubles += _troubles_of(key, node, files, chosen, _join(reaches.get(key), shown))
    troubles += [_stateless(*one) for one in sorted({(key.slug, key.epoch) for key in ledgers} - known - damaged)]
    troubles += [*_histories(states), *_two_names(states)]
    strays = sorted(path for path, _ in entries if _is_stray(path))
    return Survey(head, states, segments, troubles, digests | manifests, strays)


def _is_stray(path: str) -> bool:
    return path.endswith((DATA, MANIFEST)) and parse_path(path) is None


def _read_states(storage: Storage) -> tuple[list[NodeState], list[Trouble], dict[str, str]]:
    """Return the states that can be decoded, a problem for each other one, and the digests of all, by path."""
    states, troubles, digests = [], [], {}
    for file in state_files(storage):
        if file.sha256:
            digests[file.path] = file.sha256
        if isinstance(file.state, NodeState):
            states.append(file.state)
        else:
            message = f"the state of the node {file.state}: it is unknown how far its ledgers reach"
            troubles.append(Trouble(TroubleKind.CORRUPT, file.slug, file.epoch, None, file.path, 0, 0, message))
    return states, troubles, digests


def _stateless(node: str, epoch: str) -> Trouble:
    path = f"{NODES}/{node}/{epoch}.json"  # `node` is a slug
    message = "the state of the node is missing: it is unknown how far its ledgers reach"
    return Trouble(TroubleKind.CORRUPT, node, epoch, None, path, 0, 0, message)


def _read_ledgers(
    storage: Storage, entries: Sequence[StoredFile]
) -> tuple[dict[LedgerSlug, _LedgerFiles], dict[str, str]]:
    """Return the segments of each ledger, and the digests of all manifests, by path."""
    sizes: dict[str, int] = {}
    places: dict[str, SegmentName] = {}
    manifests: dict[str, StoredFile] = {}
    for path, size in entries:
        if (place := parse_path(path)) is None:
            continue
        places[place.name] = place
        if path.endswith(DATA):
            sizes[place.name] = size
        else:
            manifests[place.name] = StoredFile(path, size)
    read = {path: _decoded(text) for path, text in read_listed(storage, manifests.values(), MOST_JSON)}
    ledgers: defaultdict[LedgerSlug, _LedgerFiles] = defaultdict(_LedgerFiles)
    replaced: set[str] = set()
    for name, place in sorted(places.items()):
        files = ledgers[place.ledger]
        if name not in manifests:
            files.bad.append(_InvalidSegment(place, "its manifest is missing"))
            continue
        if place.manifest not in read:
            continue  # deleted since it was listed: its replacement is listed as well
        found = _judge(place, read[place.manifest].manifest, sizes.get(name))
        if isinstance(found, _InvalidSegment):
            files.bad.append(found)
        else:
            files.good.append(found)
            replaced.update(found.manifest.replaces)
    for files in ledgers.values():
        files.good = [one for one in files.good if one.place.name not in replaced]
        files.bad = [one for one in files.bad if one.place.name not in replaced]
    return dict(ledgers), {path: one.sha256 for path, one in read.items() if one.sha256}


class _ReadManifest(NamedTuple):
    """A manifest, or the error of one that cannot be decoded; and the digest of its file, as `StateFile` has it."""

    manifest: Manifest | Unreadable
    sha256: str


def _decoded(text: bytes | None) -> _ReadManifest:
    if text is None:
        return _ReadManifest(Unreadable(larger(MOST_JSON)), "")
    sha256 = hashlib.sha256(text).hexdigest()
    try:
        return _ReadManifest(decode(text, Manifest), sha256)
    except Unreadable as error:
        return _ReadManifest(error, sha256)


def _judge(place: SegmentName, manifest: Manifest | Unreadable, size: int | None) -> Segment | _InvalidSegment:
    """Return a valid segment with its manifest, or an invalid segment with the reason.

    `size` is that of its data file.
    """
    if isinstance(manifest, Unreadable):
        return _InvalidSegment(place, f"its manifest {manifest}")
    if (manifest.book, slug(manifest.node), manifest.epoch, manifest.after, manifest.upto) != (
        *(place.book, place.slug, place.epoch),
        *(place.after, place.upto),
    ):
        return _InvalidSegment(place, "its manifest describes another segment")
    if (fault := manifest_fault(manifest)) is not None:
        return _InvalidSegment(place, fault)
    if (name := _beyond(place, manifest.replaces)) is not None:
        return _InvalidSegment(
            place, f"its manifest replaces {name}: only an archive segment may, and only a landing segment in its range"
        )
    if size is None:
        return _InvalidSegment(place, "its file is missing")
    if size != manifest.bytes:
        return _InvalidSegment(place, f"its file has {size} bytes, and had {manifest.bytes} when it was written")
    return Segment(place, manifest)


def _beyond(place: SegmentName, replaced: Sequence[str]) -> str | None:
    """Return the first name in `replaced` that the segment may not replace; None if it may replace all.

    Only a segment of the archive may replace others, and only segments of the landing within its range.
    """
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


def _join(promised: Span | None, shown: Sequence[Segment | _InvalidSegment]) -> Span | None:
    """Return the promised range, extended to the highest end of these segments.

    Without a promise, return the range from their lowest to their highest number, or None without segments.
    """
    if not shown:
        return promised
    after = min(one.after for one in shown) if promised is None else promised.after
    return Span(after, max([one.upto for one in shown] + ([] if promised is None else [promised.upto])))


def _troubles_of(
    key: LedgerSlug, node: str, files: _LedgerFiles, chosen: Sequence[Segment], promised: Span | None
) -> Iterator[Trouble]:
    """Yield a problem for each invalid or missing segment in `promised`, the row numbers that must be covered."""
    present: list[Segment | _InvalidSegment] = [*chosen, *files.bad]
    if promised is None:
        return
    for bad in files.bad:
        # A segment after the promised numbers may be in the writing, one before them in the deletion.
        if bad.after < promised.upto and bad.upto > promised.after and holes(chosen, Span(bad.after, bad.upto)):
            yield _corrupt(key, node, bad.place.name, bad, bad.message)
    for hole in holes(present, promised):
        name = landing(key.book, node, key.epoch, hole.after, hole.upto, at=0).name
        yield _corrupt(key, node, name.rpartition("/")[2], hole, "no segment contains these numbers")


def _corrupt(key: LedgerSlug, node: str, name: str, span: Span | _InvalidSegment, message: str) -> Trouble:
    return Trouble(TroubleKind.CORRUPT, node, key.epoch, key.book, name, span.after, span.upto, message)


def _histories(states: Sequence[NodeState]) -> Iterator[Trouble]:
    """Yield a problem for each epoch of a node but its first.

    It is TWO_NODES if the epoch began before the state of the previous one was last written, and otherwise EPOCHS.
    """
    by_node: defaultdict[str, list[NodeState]] = defaultdict(list)
    for state in states:
        by_node[state.node].append(state)
    for node, epochs in sorted(by_node.items()):
        for before, after in pairwise(sorted(epochs, key=lambda state: state.began_at)):
            kind, words = TroubleKind.EPOCHS, "a new epoch"
            if before.as_of > after.began_at:
                kind, words = TroubleKind.TWO_NODES, "two nodes under one name"
            span = f"epoch {before.epoch} from {_iso(before.began_at)} to {_iso(before.as_of)}"
            message = f"{words}: {span}, and epoch {after.epoch} since {_iso(after.began_at)}"
            yield Trouble(kind, node, after.epoch, None, state_path(node, after.epoch), 0, 0, message)


def _two_names(states: Sequence[NodeState]) -> Iterator[Trouble]:
    for before, after in copies(states):
        shared = "instance" if before.instance == after.instance else "epoch"
        message = (
            f"one database under two names: {before.node} and {after.node} ship the same group with the {shared} "
            f"{getattr(after, shared)}"
        )
        path = state_path(after.node, after.epoch)
        yield Trouble(TroubleKind.TWO_NAMES, after.node, after.epoch, None, path, 0, 0, message)


def _iso(micros: int) -> str:
    return datetime.fromtimestamp(micros // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
