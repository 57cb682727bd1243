"""The tree of the files that a node has written to a lake: a leaf for each manifest, signed in the state of the node.

Its leaves are lines, 256 in a file, and are only ever added. The line of a manifest is written before the manifest. So
a manifest without a line, or with another digest, was not written by the node.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from eventd.errors import NotFound
from eventd.lake.file_sizes import TooLargeFile
from eventd.lake.layout import LANDING, parse_name, slug, state_path
from eventd.lake.manifest import FileTreeState, NodeState, encode
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from federation.errors import HistoryError, MalformedHistory
from federation.history.lake_checkpoints import (
    LakeCheckpoint,
    LakeOrigin,
    open_lake_checkpoint,
    sign_lake_checkpoint,
)
from federation.history.merkle import CompactRange, hash_leaf, hash_perfect
from federation.history.notes import LOG_KEY, NoteKey, NoteSigner, read_note, read_vkey
from federation.history.tiles import TILE_HEIGHT, TILE_WIDTH, TileAddress, consistency_proof

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TREES: Final = "trees"
"""The folder of the lines. Earlier versions do not read it."""
LINES: Final = TILE_WIDTH
"""Lines of a full file: those of a tile, so that its root is a hash of level 1."""
_MOST_BYTES: Final = LINES * 1024
"""Bytes of a file: larger ones are not read, as no node writes them."""
_AT_ONCE: Final = 64
"""Files that are read at the same time."""
_MOST_KEPT: Final = 64
"""Files whose hashes are kept while proofs are computed: they take 512 KiB."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


class LineKind(StrEnum):
    """The kinds of lines. `begin`: the manifests of a ledger up to this number are older than the tree; `drop`: those
    up to this number may be gone, because retention has removed them. `after`: the node had signed these many lines of
    another tree before."""

    BEGIN = "begin"
    SHIP = "ship"
    ARCHIVE = "archive"
    DROP = "drop"
    AFTER = "after"


class TreeLine(NamedTuple):
    """A line: of a manifest, the name of its segment and the digests that it may have; else a ledger and a number.

    The second digest is that without the names of the segments that it replaces, which are removed after a day.
    """

    kind: LineKind
    name: str
    values: tuple[str, ...]

    def text(self) -> str:
        """Return the line, without a line feed."""
        return " ".join((self.kind, self.name, *self.values))


def read_line(text: str) -> TreeLine | None:
    """Return the line with this text; None for one that no node writes."""
    kind, *rest = text.split(" ")
    if kind in (LineKind.SHIP, LineKind.ARCHIVE) and 1 < len(rest) < 4:
        name, *digests = rest
        if parse_name(name) is not None and all(map(_DIGEST.fullmatch, digests)):
            return TreeLine(LineKind(kind), name, tuple(digests))
    if kind in (LineKind.BEGIN, LineKind.DROP, LineKind.AFTER) and len(rest) == 2 and _NUMBER.fullmatch(rest[1]):
        return TreeLine(LineKind(kind), rest[0], (rest[1],))
    return None


def line_of(kind: LineKind, name: str, manifest: bytes) -> TreeLine:
    """Return the line of a manifest with this content."""
    digests = dict.fromkeys(sha256(text).hexdigest() for text in (manifest, without_replaced(manifest)))
    return TreeLine(kind, name, tuple(digests))


def without_replaced(manifest: bytes) -> bytes:
    """Return a manifest that names no replaced segments any more; all else stays, also fields of later versions."""
    fields: dict[str, Any] = msgspec.json.decode(manifest)
    if not fields.get("replaces"):
        return manifest
    return msgspec.json.format(msgspec.json.encode(fields | {"replaces": []}), indent=1) + b"\n"


def digest_of_state(text: bytes) -> bytes:
    """Return the digest of a state that its checkpoint has.

    It leaves out what operators change without the key of the node: `closed_at`, and from where on rows are promised.
    """
    fields: dict[str, Any] = msgspec.json.decode(text)
    for name in ("tree", "closed_at"):
        fields.pop(name, None)
    for name in ("segments", "later_segments"):
        fields[name] = {book: {"upto": reach["upto"]} for book, reach in fields.get(name, {}).items()}
    return sha256(msgspec.json.encode(fields, order="sorted")).digest()


def lines_folder(node: str, epoch: str, tree: str) -> str:
    """Return the folder with the lines of a tree, given the node's name."""
    return f"{TREES}/{slug(node)}/{epoch}/{tree}"


def read_lines(storage: Storage, folder: str, first: int = 0) -> Iterator[str]:
    """Yield the lines of a tree from that with index `first`, which begins a file. Raises LakeUnavailable."""
    found = [one for one in storage.list(folder) if one.bytes <= _MOST_BYTES and _number_of(one.path) >= first // LINES]
    files = iter(sorted(one.path for one in found))
    number = first // LINES
    while paths := [*islice(files, _AT_ONCE)]:
        texts = storage.read_many(paths)
        for path in paths:
            lines = _lines_in(texts.get(path, b""))
            if _number_of(path) != number:
                return
            yield from lines
            if len(lines) != LINES:
                return
            number += 1


def _lines_in(text: bytes) -> list[str]:
    return text.decode("utf-8", "replace").split("\n")[:-1]


def _path_of(folder: str, number: int) -> str:
    return f"{folder}/{number:09d}.txt"


def _number_of(path: str) -> int:
    name = path.rpartition("/")[2].removesuffix(".txt")
    return int(name) if name.isascii() and name.isdigit() else -1


def key_of(tree: FileTreeState) -> NoteKey:
    """Return the key that a state names. Raises MalformedHistory."""
    return read_vkey(tree.key, LOG_KEY)


def checkpoint_of(tree: FileTreeState) -> LakeCheckpoint:
    """Return the checkpoint of a state, if the key that it names has signed it. Raises HistoryError."""
    return open_lake_checkpoint(read_note(tree.note.encode()), key_of(tree))


class FileTree:
    """The tree of a node and epoch, as the node itself adds to it."""

    def __init__(self, storage: Storage, origin: LakeOrigin, hashes: CompactRange, last: Sequence[str] = ()) -> None:
        self._storage = storage
        self._origin = origin
        self._range = hashes
        self._last = [*last]
        """The lines of the last file."""
        self._is_written = True
        self.is_begun = True
        """Whether a file of the tree is written: the state has to name the tree before, and its later lines after."""
        self._roots = list[bytes]()
        """The roots of the first files, as far as a proof needed them."""

    @classmethod
    def begin(cls, storage: Storage, origin: LakeOrigin, reaches: Mapping[Ledger, int]) -> Self:
        """Return a new tree. `reaches`: up to where manifests of each ledger exist already.

        Nothing is written before `flush`: first the state has to name the tree, or an interrupted start would leave
        lines that look like those of an earlier tree.
        """
        made = cls(storage, origin, CompactRange())
        made.is_begun = False
        for book in Ledger:
            made._append(TreeLine(LineKind.BEGIN, book.value, (str(reaches.get(book, 0)),)).text())
        return made

    @classmethod
    def resume(cls, storage: Storage, state: NodeState, keys: Collection[bytes]) -> Self | None:
        """Return the tree of a state that one of these public keys has signed; None if it cannot be continued.

        Lines that no state has signed yet stay if the node may have written them before it ended, see `_shipped_since`.
        """
        if state.tree is None:
            return None
        try:
            signed = checkpoint_of(state.tree)
            hashes = CompactRange(signed.size, map(bytes.fromhex, state.tree.hashes))
        except (HistoryError, ValueError):
            return None
        mine = key_of(state.tree).public in keys
        if not mine or hashes.root() != signed.root or signed.origin[:2] != (state.node, state.epoch):
            return None
        folder, begin = lines_folder(*signed.origin), signed.size - signed.size % LINES
        lines = [*read_lines(storage, folder, begin)]
        known, tail = lines[: signed.size - begin], lines[signed.size - begin :]
        if len(known) < signed.size - begin:
            return None
        made = cls(storage, signed.origin, hashes, known)
        made.add(_shipped_since(storage, state, signed, tail))
        return made

    def all_lines(self) -> list[str] | None:
        """Return all lines; None if those in the lake are not the ones that were added. Raises LakeUnavailable."""
        lines = [*islice(read_lines(self._storage, lines_folder(*self._origin)), self._range.size)]
        hashes = CompactRange()
        for line in lines:
            hashes.append(hash_leaf(line.encode()))
        return lines if (hashes.size, hashes.root()) == (self._range.size, self._range.root()) else None

    def add(self, lines: Iterable[TreeLine]) -> None:
        """Add lines, and write them. Raises LakeUnavailable."""
        for line in lines:
            if len(self._last) == LINES:
                self.flush()
                self._last = []
            self._append(line.text())
        self.flush()

    def _append(self, line: str) -> None:
        self._last.append(line)
        self._range.append(hash_leaf(line.encode()))
        self._is_written = False

    def flush(self) -> None:
        """Write the lines that are not written yet. Raises LakeUnavailable."""
        if not self._is_written:
            path = _path_of(lines_folder(*self._origin), (self._range.size - 1) // LINES)
            self._storage.put(path, "".join(f"{line}\n" for line in self._last).encode())
            self._is_written = self.is_begun = True

    def is_named(self, note: str) -> bool:
        """Return whether a note is about this tree."""
        return note.startswith(f"{self._origin}\n")

    def prove(self, old: int, size: int) -> list[bytes]:
        """Return the consistency proof between two sizes. Raises MalformedHistory without lines, LakeUnavailable."""
        return consistency_proof(old, size, partial(self._read_tile, {}))

    def prove_each(self, olds: Iterable[int], size: int) -> dict[int, list[bytes]]:
        """Return the consistency proofs of a size from smaller ones, without those that the lines do not give.

        Each file is read once for all of them. Raises LakeUnavailable.
        """
        found, read = dict[int, list[bytes]](), dict[int, list[bytes]]()
        for old in sorted({*olds}):
            with suppress(HistoryError):
                found[old] = consistency_proof(old, size, partial(self._read_tile, read))
        return found

    def _read_tile(self, read: dict[int, list[bytes]], address: TileAddress) -> bytes:
        """Return the hashes of a tile. `read`: those of files that were read already."""
        first = address.number * TILE_WIDTH
        if address.level:
            count = (first + address.width) << (address.level - 1) * TILE_HEIGHT
            hashes = self._roots_of_files(count)
            is_whole = len(hashes) == count
            for _ in range(address.level - 1 if is_whole else 0):
                hashes = [hash_perfect(hashes[at : at + TILE_WIDTH]) for at in range(0, len(hashes), TILE_WIDTH)]
            hashes = hashes[first:]
        else:
            known = read.pop(address.number, None)
            while len(read) >= _MOST_KEPT:  # those that were not used for the longest time
                del read[next(iter(read))]
            read[address.number] = self._hashes_of_file(address.number) if known is None else known
            hashes = read[address.number][: address.width]
            is_whole = len(hashes) == address.width
        if not is_whole:
            raise MalformedHistory(f"lines of {self._origin} are not in the lake", reason="tile_missing")
        return b"".join(hashes)

    def _hashes_of_file(self, number: int) -> list[bytes]:
        """Return the hashes of the lines of a file, of which there may be fewer than 256; empty without a file."""
        try:
            text = self._storage.read_within(_path_of(lines_folder(*self._origin), number), _MOST_BYTES)
        except (NotFound, TooLargeFile):
            return []
        return [hash_leaf(line.encode()) for line in _lines_in(text)]

    def _roots_of_files(self, count: int) -> list[bytes]:
        """Return the roots of the first files, at least so many if they are there. Each is read once."""
        if len(self._roots) < count:
            lines = read_lines(self._storage, lines_folder(*self._origin), len(self._roots) * LINES)
            while len(self._roots) < count and len(some := [*islice(lines, LINES)]) == LINES:
                self._roots.append(hash_perfect([hash_leaf(line.encode()) for line in some]))
        return self._roots[:count]

    def sign(self, state: NodeState, key: Ed25519PrivateKey, cosigned: str = "") -> NodeState:
        """Return a state with a checkpoint of all lines, and with the last one that was cosigned."""
        signer = NoteSigner(str(self._origin), LOG_KEY, key)
        digest = digest_of_state(encode(state))
        note = sign_lake_checkpoint(LakeCheckpoint(self._origin, self._range.size, self._range.root(), digest), signer)
        hashes = tuple(one.hex() for one in self._range.hashes)
        return replace(
            state,
            tree=FileTreeState(key=signer.key.text(), note=note.encode().decode(), hashes=hashes, cosigned=cosigned),
        )


def _shipped_since(
    storage: Storage, state: NodeState, signed: LakeCheckpoint, tail: Iterable[str]
) -> Iterator[TreeLine]:
    """Yield the lines of segments that continue what a signed state covers, if they have manifests with these digests.

    Everyone who writes to the lake can append a line. One of a segment that the state covers would give that segment
    another manifest, so it is left out, and so are those beside a state that was changed. An archive is verified, and
    gets its line then.
    """
    path = state_path(state.node, state.epoch)
    text = storage.read_many([path]).get(path)
    if text is None or digest_of_state(text) != signed.state:
        return
    reaches = {book: reach.upto for book, reach in state.segments.items()}
    for line in map(read_line, tail):
        place = parse_name(line.name) if line is not None and line.kind is LineKind.SHIP else None
        if line is None or place is None or place.tree != LANDING or place.slug != slug(state.node):
            continue
        follows = place.epoch == state.epoch and place.after == reaches.get(place.book, place.after)
        text = storage.read_many([place.manifest]).get(place.manifest) if follows else None
        if text is not None and sha256(text).hexdigest() in line.values:
            reaches[place.book] = place.upto
            yield line
