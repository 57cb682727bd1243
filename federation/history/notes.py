"""Signed notes and verifier keys: a profile of C2SP signed-note that is strict in what it reads.

A note is a text and lines with signatures of it. Signatures of unknown keys are ignored. If a signature with the name
and the id of a known key is wrong, the note is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from federation.errors import MalformedHistory, UnprovenNote
from federation.event import WHITE_SPACE
from federation.history.forms import quote, read_base64, write_base64
from federation.weak_keys import is_weak

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_NOTE: Final = 16 * 1024
"""Maximum bytes of a note with its signatures."""
MAX_SIGNATURES: Final = 16
LOG_KEY: Final = 0x01
"""The type of a signature of a log: Ed25519 over the text."""
WITNESS_KEY: Final = 0x04
"""The type of a cosignature of a witness: Ed25519 over a time and the text."""
KEY_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64

_ID_SIZE: Final = 4
_DASH: Final = "— "
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Matches what has no form in UTF-8, in which names are hashed."""
_KINDS: Final = {LOG_KEY: "log", WITNESS_KEY: "witness"}


class NoteSignature(NamedTuple):
    """A signature line: the name and the key id that the signer claims, and bytes whose form depends on the type of
    the key."""

    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        """Return the line, with its line feed."""
        return f"{_DASH}{self.name} {write_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True)
class SignedNote:
    """A note. `read_note` makes one from bytes that come from outside; nothing in it is proven by that."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def encode(self) -> bytes:
        """Return the note as it is stored and sent."""
        return f"{self.text}\n{''.join(one.line() for one in self.signatures)}".encode()

    def add(self, signature: NoteSignature) -> SignedNote:
        """Return the note with one more signature, the last line. Raises MalformedHistory if it has no room for it."""
        note = replace(self, signatures=(*self.signatures, signature))
        _require_room(len(note.encode()), len(note.signatures))
        return note

    def of(self, key: NoteKey) -> list[bytes]:
        """Return the signatures under the name and the id of a key, without verifying them."""
        return [one.signature for one in self.signatures if (one.name, one.key_id) == (key.name, key.id)]

    def choose(self, keys: Sequence[NoteKey]) -> NoteKey:
        """Return the first of some keys under whose name and id the note has a signature, else the first of them."""
        return next((key for key in keys if self.of(key)), keys[0])


@dataclass(frozen=True)
class NoteKey:
    """A verifier key: the public key that a verifier knows under a name, and the one type of its signatures."""

    name: str
    kind: int
    public: bytes

    def __post_init__(self) -> None:
        _require_name(self.name)
        if self.kind not in _KINDS or len(self.public) != KEY_SIZE:
            raise MalformedHistory(
                f"the key {quote(self.name)} has type {self.kind} and {len(self.public)} bytes: a key of a log has type"
                f" {LOG_KEY}, that of a witness {WITNESS_KEY}, and both have {KEY_SIZE} bytes",
                reason="key",
            )
        if is_weak(self.public):
            raise MalformedHistory(
                f"the key {quote(self.name)} is weak: its signatures can be forged; create another key", reason="key"
            )

    @cached_property
    def id(self) -> bytes:
        """The key id that the key's signatures carry.

        It proves nothing, because another key can be made to have the same id.
        """
        return sha256(f"{self.name}\n".encode() + bytes([self.kind]) + self.public).digest()[:_ID_SIZE]

    def text(self) -> str:
        """Return the key as text, a vkey: `NAME+ID+KEY`."""
        return f"{self.name}+{self.id.hex()}+{key_part(self.kind, self.public)}"

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this is the key's Ed25519 signature over a message."""
        from federation import ed25519

        return ed25519.verifies(ed25519.from_raw(self.public), signature, message)

    def fails(self) -> UnprovenNote:
        """Return the error for a signature that has this key's name and id but was not made by this key."""
        return UnprovenNote(
            f"a signature under the name {self.name} and the id {self.id.hex()} of a known {_KINDS[self.kind]} key is"
            " wrong: the note was changed, or another key was made to look like this one",
            reason="signature",
        )


def key_part(kind: int, public: bytes) -> str:
    """Return the last part of a verifier key: the same under each name, so that keys without a tree can be compared."""
    return write_base64(bytes([kind]) + public)


@dataclass(frozen=True)
class NoteSigner:
    """A private key with the name and the type of its signatures."""

    name: str
    kind: int
    private: Ed25519PrivateKey = field(repr=False)

    @cached_property
    def key(self) -> NoteKey:
        """The key that verifiers know."""
        return NoteKey(self.name, self.kind, self.private.public_key().public_bytes_raw())

    def line(self, signature: bytes) -> NoteSignature:
        """Return a signature of this key as a line of a note."""
        return NoteSignature(self.name, self.key.id, signature)


def read_vkey(text: str, kind: int) -> NoteKey:
    """Return the verifier key with this text, which must be of this type. Raises MalformedHistory."""
    name, *rest = text.split("+", 2)
    id_text, key_text = rest if len(rest) == 2 else ("", "")
    if not key_text or len(text.encode(errors="replace")) > MAX_NOTE:
        raise MalformedHistory(f"{quote(text)} is not a verifier key: it has the form NAME+ID+KEY", reason="key")
    material = read_base64(key_text, f"the key {quote(name)}")
    if material[:1] != bytes([kind]):
        raise MalformedHistory(
            f"the key {quote(name)} has type {material[0] if material else 'none'}: a {_KINDS[kind]} key has {kind}",
            reason="key_type",
        )
    key = NoteKey(name, kind, material[1:])
    if id_text != key.id.hex():
        raise MalformedHistory(
            f"the key {quote(name)} has the id {quote(id_text)}, but its name and key give {key.id.hex()}: copy the"
            " whole key again",
            reason="key_id",
        )
    return key


def sign_text(text: str, signer: NoteSigner) -> NoteSignature:
    """Return the signature of a log over a text."""
    return signer.line(signer.private.sign(text.encode()))


def require_signed(note: SignedNote, key: NoteKey) -> None:
    """Raise UnprovenNote unless this key of a log signed the note."""
    signatures = note.of(key)
    if not signatures:
        raise UnprovenNote(
            f"the note has no signature of {key.name} with key id {key.id.hex()}: it was signed with another key, or"
            " not at all",
            reason="unsigned",
        )
    # Each one, because a line that fails says that the note was put together from something else.
    for signature in signatures:
        if not key.verifies(signature, note.text.encode()):
            raise key.fails()


def read_note(data: bytes) -> SignedNote:
    """Return the note in these bytes. Raises MalformedHistory."""
    _require_room(len(data), 0)
    text = read_text(data, "the note")
    body, blank, block = text.rpartition("\n\n")
    if not (blank and block.endswith("\n")):
        raise MalformedHistory(
            "a note is a text, an empty line, and lines with signatures, each with a line feed at its end",
            reason="note",
        )
    return SignedNote(f"{body}\n", tuple(_read_signatures(block)))


def read_text(data: bytes, what: str) -> str:
    """Return UTF-8 without control characters but line feeds. Raises MalformedHistory."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MalformedHistory(f"{what} is not UTF-8: byte {error.start}", reason="text") from None
    found = _CONTROL.search(text)
    if found is not None:
        raise MalformedHistory(
            f"{what} has the control character U+{ord(found[0]):04X} at character {found.start()}", reason="text"
        )
    return text


def _read_signatures(block: str) -> Iterator[NoteSignature]:
    lines = block[:-1].split("\n")
    _require_room(0, len(lines))
    for number, line in enumerate(lines, 1):
        what = f"signature {number} of the note"
        dash, name, text = line[: len(_DASH)], *_cut(line[len(_DASH) :])
        if dash != _DASH or not text:
            raise MalformedHistory(f"{what} is {quote(line)}: it must be an em dash, a name and base64", reason="note")
        _require_name(name)
        value = read_base64(text, what)
        if len(value) <= _ID_SIZE:
            raise MalformedHistory(f"{what} has {len(value)} bytes: a key id and a signature have more", reason="note")
        yield NoteSignature(name, value[:_ID_SIZE], value[_ID_SIZE:])


def _cut(line: str) -> tuple[str, str]:
    name, _, rest = line.partition(" ")
    return name, rest


def _require_name(name: str) -> None:
    unfit = not name or "+" in name or _CONTROL.search(name) or _SURROGATE.search(name)
    if unfit or any(character in WHITE_SPACE for character in name):
        raise MalformedHistory(f"{quote(name)} is not the name of a key: it has no blank and no +", reason="key_name")


def _require_room(length: int, signatures: int) -> None:
    if length > MAX_NOTE or signatures > MAX_SIGNATURES:
        raise MalformedHistory(
            f"a note has at most {MAX_NOTE} bytes and {MAX_SIGNATURES} signatures: this one has more",
            reason="note_size",
        )
