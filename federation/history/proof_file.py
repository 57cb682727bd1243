"""A proof file: one event with all that proves that a node admitted it, for a reader with public keys alone.

The keys come from the reader and never from the file: with its own keys a file could prove anything. `check_proof`
needs no clock, no network and no database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from federation.digest import digest
from federation.errors import HistoryError, MalformedHistory, UnprovenNote
from federation.event import Event, decode_canonical
from federation.history.checkpoints import Checkpoint, open_checkpoint, read_checkpoint
from federation.history.cosignatures import cosignature_times
from federation.history.entries import OPENING_ENTRY, OpeningEntry, event_entry, read_opening_entry
from federation.history.file_forms import describe_form, read_json
from federation.history.forms import quote, read_hash, read_number, write_base64
from federation.history.merkle import HASH_SIZE, MAX_SIZE, hash_leaf
from federation.history.notes import LOG_KEY, NoteKey, SignedNote, read_note
from federation.history.proofs import verify_inclusion

PROOF_FORMAT: Final = "eventd-proof/1"
MAX_PROOF_FILE: Final = 4 * 1024 * 1024
"""Maximum bytes of a proof file: an event of 1 MiB, of which each character may be escaped, and its proof."""
MAX_HASHES: Final = 63
"""Maximum hashes of an inclusion path."""

_HEADER: Final = "c2sp.org/tlog-proof@v1"
_INDEX: Final = "index "


class _OpeningForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: str
    path: list[str]


class _FileForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    format: Literal["eventd-proof/1"]
    proof: str
    opening: _OpeningForm
    event: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class LeafProof:
    """A leaf of a tree: its index, its inclusion path, and the note of the checkpoint to which the path leads."""

    index: int
    path: tuple[bytes, ...]
    note: SignedNote

    def text(self) -> str:
        """Return the C2SP tlog-proof."""
        hashes = "".join(f"{write_base64(one)}\n" for one in self.path)
        return f"{_HEADER}\n{_INDEX}{self.index}\n{hashes}\n{self.note.encode().decode()}"


@dataclass(frozen=True)
class ProofFile:
    """The content of a proof file. `event` is the canonical text, or None if the file has only its `digest`.

    `opening` is the opening entry of the tree, and `opening_path` leads from it to the root of the same checkpoint.
    """

    digest: bytes
    event: str | None
    leaf: LeafProof
    opening: bytes
    opening_path: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the file."""
        opening = _OpeningForm(self.opening[1:].decode(), [write_base64(one) for one in self.opening_path])
        form = _FileForm(
            format=PROOF_FORMAT,
            event=self.event,
            digest=self.digest.hex() if self.event is None else None,
            proof=self.leaf.text(),
            opening=opening,
        )
        return json.dumps(msgspec.to_builtins(form), ensure_ascii=False, indent=2).encode() + b"\n"


@dataclass(frozen=True)
class ProvenEvent:
    """What a proof file proves: that the node of `checkpoint.origin` admitted the event with this digest.

    `event` is None if the file does not contain it. `cosigned` has, for each known witness that cosigned the
    checkpoint, the time at which it did, in seconds since 1970: at the earliest of these times, the event existed.
    """

    digest: bytes
    event: Event | None
    index: int
    checkpoint: Checkpoint
    opening: OpeningEntry
    cosigned: dict[NoteKey, int]


def check_proof(data: bytes, log_keys: Iterable[NoteKey], witness_keys: Iterable[NoteKey] = ()) -> ProvenEvent:
    """Return what a proof file proves to a reader who knows these keys.

    Raises MalformedHistory for what is not in its form, BadEvent for an event that is not canonical, ProofMismatch if a
    path does not lead to the root, and UnprovenNote if no known key signed the checkpoint or a signature is wrong.
    """
    file, known = read_proof_file(data), [*log_keys]
    event = None if file.event is None else decode_canonical(file.event)
    note, stated = file.leaf.note, read_checkpoint(file.leaf.note.text)
    verify_inclusion(hash_leaf(event_entry(file.digest)), file.leaf.index, stated.size, file.leaf.path, stated.root)
    verify_inclusion(hash_leaf(file.opening), 0, stated.size, file.opening_path, stated.root)
    key = _key_of(stated, note, known, file.opening)
    checkpoint = open_checkpoint(note, key)
    opening = read_opening_entry(file.opening)
    _refuse_wrong_succession(opening, known)
    if opening.opening.key != key:
        raise UnprovenNote(
            f"leaf 0 of {checkpoint.origin} opens a tree with another key, {opening.opening.key.text()}",
            reason="opening_key",
        )
    if event is not None and event.group != checkpoint.origin.group:
        raise UnprovenNote(
            f"the event is of the group {quote(event.group)}, but the tree {checkpoint.origin} is of another",
            reason="group",
        )
    return ProvenEvent(file.digest, event, file.leaf.index, checkpoint, opening, cosignature_times(note, witness_keys))


def _key_of(stated: Checkpoint, note: SignedNote, given: list[NoteKey], opening: bytes) -> NoteKey:
    """Return the known key of a tree, which has this opening entry: of several, the one that the note names."""
    known = [key for key in given if key.name == str(stated.origin)]
    if not known:
        raise UnprovenNote(_why_no_key(str(stated.origin), given, opening), reason="no_key")
    return note.choose(known)


def _refuse_wrong_succession(entry: OpeningEntry, known: list[NoteKey]) -> None:
    """Raise UnprovenNote if the entry has a wrong signature of a known key of the previous tree."""
    previous = entry.opening.previous
    for key in known:
        if previous is not None and key.name == str(previous.origin):
            entry.is_signed_by(key)


def _why_no_key(origin: str, given: Iterable[NoteKey], opening: bytes) -> str:
    """Return why none of the given keys is that of a tree: a node has one key for its trees, and each has its name."""
    with suppress(HistoryError):
        public = read_opening_entry(opening).opening.key.public
        for key in given:
            if (key.kind, key.public) == (LOG_KEY, public):
                return (
                    f"the known key of {key.name} also opens the tree {origin}, and counts only under its own name: if"
                    f" both are trees of its node, give it as {NoteKey(origin, LOG_KEY, public).text()}"
                )
    return f"no known key is that of the tree {origin}: get it from its operator, not from the file"


def read_proof_file(data: bytes) -> ProofFile:
    """Return the content of a proof file, of which nothing is proven yet. Raises MalformedHistory."""
    form = _read_form(data)
    if (form.event is None) == (form.digest is None):
        raise MalformedHistory("a proof file has either the event or its digest", reason="file")
    leaf = read_leaf_proof(form.proof)
    if leaf.index == 0:
        raise MalformedHistory("leaf 0 is the opening entry of its tree, and not an event", reason="index")
    opening = OPENING_ENTRY + _encode(form.opening.note)
    path = _read_path(form.opening.path, "the path of the opening entry")
    if form.event is not None:
        return ProofFile(_digest_of(form.event), form.event, leaf, opening, path)
    return ProofFile(_read_digest(form.digest or ""), None, leaf, opening, path)


def read_leaf_proof(text: str) -> LeafProof:
    """Return the proof of a leaf from a C2SP tlog-proof without extra data. Raises MalformedHistory."""
    head, blank, note = text.partition("\n\n")
    header, *lines = head.split("\n")
    if header != _HEADER or not blank or not lines or not lines[0].startswith(_INDEX):
        raise MalformedHistory(
            f"the proof has the lines {_HEADER}, index N, one for each hash, an empty one, and a checkpoint",
            reason="proof",
        )
    index = read_number(lines[0].removeprefix(_INDEX), "the index of the leaf", MAX_SIZE - 1)
    return LeafProof(index, _read_path(lines[1:], f"the path of leaf {index}"), read_note(_encode(note)))


def _read_path(lines: list[str], what: str) -> tuple[bytes, ...]:
    if len(lines) > MAX_HASHES:
        raise MalformedHistory(f"{what} has {len(lines)} hashes: there are at most {MAX_HASHES}", reason="proof_length")
    return tuple(read_hash(line, f"hash {number} of {what}") for number, line in enumerate(lines, 1))


def _read_form(data: bytes) -> _FileForm:
    if len(data) > MAX_PROOF_FILE:
        raise MalformedHistory(
            f"it is larger than a proof file, which has at most {MAX_PROOF_FILE} bytes", reason="file_size"
        )
    value = read_json(data)
    try:
        return msgspec.convert(value, _FileForm)
    except (ValueError, RecursionError) as error:
        raise MalformedHistory(describe_form(value, str(error), PROOF_FORMAT), reason="file") from None


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedHistory("the file has a lone surrogate, which has no UTF-8 form", reason="text") from None


def _digest_of(event: str) -> bytes:
    return digest(_encode(event))


def _read_digest(text: str) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != HASH_SIZE or value.hex() != text:
        raise MalformedHistory(
            f"the digest is {quote(text)}: it must be {2 * HASH_SIZE} lower-case hexadecimal digits", reason="digest"
        )
    return value
