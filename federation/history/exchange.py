"""The questions of `POST /v2/history`, by which nodes witness each other's trees, and their answers. Pure."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from federation.errors import BadAnswer, Malformed, MalformedHistory
from federation.event import OptionalText
from federation.history.entries import OPENING_ENTRY
from federation.history.forms import read_base64, read_hash, write_base64
from federation.history.merkle import MAX_SIZE
from federation.history.notes import MAX_NOTE, NoteSignature, read_note
from federation.history.tiles import TILE_WIDTH, TileAddress
from federation.history.tiles import read_hashes as read_tile
from federation.history.witnessing import Offer

HISTORY_QUESTION_BYTES: Final = 1 << 20
"""Maximum size of a question in bytes."""
HISTORY_ANSWER_BYTES: Final = 1 << 20
"""Maximum size of an answer in bytes."""
MOST_PROOF: Final = 63
"""Maximum hashes of a proof."""
MOST_NOTES: Final = 64
"""Maximum notes of other trees in a message."""
MOST_ROTATIONS: Final = 16
"""Maximum opening entries of earlier trees of a tree's node in a message."""
MOST_NOTE_BYTES: Final = 512 << 10
"""Maximum bytes of the notes of other trees in a message that this program sends."""

MOST_TILES: Final = 64
"""Maximum tiles in an answer: 699 KB of base64."""
MOST_ENTRIES: Final = 1000
"""Maximum entries of a question that are proven together."""
MOST_RANGE_PROOF: Final = 126
"""Maximum hashes of the proof of a range: on each of its sides there is at most one for each height."""
MOST_MULTIPROOF: Final = 20_000
"""Maximum hashes of a multiproof: 940 KB of base64. 1,000 entries of 500 million leaves need that many at most."""

_Note = Annotated[str, Meta(max_length=MAX_NOTE)]
_Notes = Annotated[tuple[_Note, ...], Meta(max_length=MOST_NOTES)]
_Hash = Annotated[str, Meta(max_length=44)]
_Hashes = Annotated[tuple[_Hash, ...], Meta(max_length=MOST_PROOF)]
_Tile = Annotated[str, Meta(max_length=10_924)]
_Size = Annotated[int, Meta(ge=0, le=MAX_SIZE)]
_Index = Annotated[int, Meta(ge=1, lt=MAX_SIZE)]
_Origin = Annotated[str, Meta(max_length=512)]


class OpeningProof(Struct, frozen=True, omit_defaults=True):
    """The note of an opening entry, and its inclusion path in the tree of a checkpoint.

    `rotations`: the notes of the opening entries with which the node replaced its keys before, and those of
    the predecessors of the offered tree, as many as fit, oldest first.
    """

    note: _Note
    path: _Hashes
    rotations: Annotated[tuple[_Note, ...], Meta(max_length=MOST_ROTATIONS)] = ()


class WitnessQuestion(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="ask", tag="witness"
):
    """Asks for a cosignature of a checkpoint; for its members see `Offer`. `notes`: the last ones of other trees."""

    note: _Note
    old: _Size = 0
    proof: _Hashes = ()
    opening: OpeningProof | None = None
    notes: _Notes = ()


class KeysQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="ask", tag="keys"):
    """Asks for the keys of the receiver, and what it holds of the asking node's trees.

    `notes`: the last ones that the asking node holds of the receiver's trees.
    """

    notes: _Notes = ()


class ConsistencyQuestion(Struct, frozen=True, kw_only=True, tag_field="ask", tag="consistency"):
    """Asks the receiver for the consistency proof between two sizes of one of its own trees."""

    tree: _Origin
    old: Annotated[int, Meta(ge=1, le=MAX_SIZE)]
    size: Annotated[int, Meta(ge=1, le=MAX_SIZE)]


class TilesQuestion(Struct, frozen=True, kw_only=True, tag_field="ask", tag="tiles"):
    """Asks for the tiles of level 0 of a tree of this `size`, from number `first` on, at most `count`."""

    tree: _Origin
    first: Annotated[int, Meta(ge=0, le=MAX_SIZE // TILE_WIDTH)]
    count: Annotated[int, Meta(ge=1, le=MOST_TILES)]
    size: Annotated[int, Meta(ge=1, le=MAX_SIZE)]

    @property
    def end(self) -> int:
        """The number of leaves up to the end of the tiles."""
        return min((self.first + self.count) * TILE_WIDTH, self.size)


class NoteQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="ask", tag="note"):
    """Asks for the last checkpoint of a tree that the receiver can prove: of its own tree, or of one that it relays.

    `old`: the size that the asking node holds of the tree; 0: it holds nothing.
    """

    tree: _Origin
    old: _Size = 0


class RangeQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="ask", tag="range"):
    """Asks for a proof of the leaves `first` to `last`, both included, in the checkpoint of this `size`; 0: the last.

    The asking node has the entries of these leaves.
    """

    tree: _Origin
    first: _Index = field(name="from")
    last: _Index = field(name="to")
    size: _Size = 0

    @property
    def indices(self) -> range:
        """The indices of the leaves."""
        return range(self.first, self.last + 1)


class ProveQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="ask", tag="prove"):
    """Asks for one proof of entries of a tree in the checkpoint of this `size`; 0: the last.

    The entries are those of events with these `ids` and `digests`, and those at these `indices`.
    """

    tree: _Origin
    ids: Annotated[tuple[OptionalText, ...], Meta(max_length=MOST_ENTRIES)] = ()
    digests: Annotated[tuple[_Hash, ...], Meta(max_length=MOST_ENTRIES)] = ()
    indices: Annotated[tuple[_Index, ...], Meta(max_length=MOST_ENTRIES)] = ()
    size: _Size = 0

    def __post_init__(self) -> None:
        if not 0 < self.entries <= MOST_ENTRIES:
            raise ValueError(f"a question is about 1 to {MOST_ENTRIES} entries, not {self.entries}")

    @property
    def entries(self) -> int:
        """How many entries the question is about."""
        return len(self.ids) + len(self.digests) + len(self.indices)


HistoryQuestion = (
    WitnessQuestion | KeysQuestion | ConsistencyQuestion | TilesQuestion | NoteQuestion | RangeQuestion | ProveQuestion
)


class WitnessAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The signature line of a cosignature, and the last notes of other trees."""

    cosignature: Annotated[str, Meta(max_length=1024)]
    notes: _Notes = ()


class KeysAnswer(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The verifier keys of the answering node; `log_key`, `note` and `opening` are of its open tree, if it has one.

    `notes`: the last ones that it holds of the asking node's trees.
    """

    witness_key: Annotated[str, Meta(max_length=1024)]
    log_key: Annotated[str, Meta(max_length=1024)] = ""
    note: _Note = ""
    opening: OpeningProof | None = None
    notes: _Notes = ()


class ConsistencyAnswer(Struct, frozen=True):
    """A consistency proof."""

    proof: _Hashes


class TilesAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hashes of tiles, with the consistency proof from the size at their end to the size of the question.

    `opening`: with the first tile, the note of the tree's opening entry.
    """

    tiles: Annotated[tuple[_Tile, ...], Meta(max_length=MOST_TILES)]
    proof: _Hashes = ()
    opening: _Note = ""


class NoteAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint, as it would be offered to the asking node; for its members see `Offer`.

    With an empty `note`, the answering node can prove nothing of the tree, or less than the asking node holds.
    """

    note: _Note = ""
    proof: _Hashes = ()
    opening: OpeningProof | None = None


class RangeAnswer(Struct, frozen=True, kw_only=True):
    """The multiproof of neighbouring leaves, and the note of the checkpoint to whose root it leads."""

    proof: Annotated[tuple[_Hash, ...], Meta(max_length=MOST_RANGE_PROOF)]
    note: _Note


class ProveAnswer(Struct, frozen=True, kw_only=True):
    """The index of each entry, in the order of the question: its ids, its digests, its indices; 0: it is not proven.

    `proof` is the multiproof of all the others, empty without any, and `note` the checkpoint to whose root it leads.
    """

    indices: Annotated[tuple[_Size, ...], Meta(max_length=MOST_ENTRIES)]
    proof: Annotated[tuple[_Hash, ...], Meta(max_length=MOST_MULTIPROOF)]
    note: _Note


HistoryReply = WitnessAnswer | KeysAnswer | ConsistencyAnswer | TilesAnswer | NoteAnswer | RangeAnswer | ProveAnswer

_QUESTIONS: Final = msgspec.json.Decoder(HistoryQuestion)


def encode_history(message: HistoryQuestion | HistoryReply) -> bytes:
    """Return the body of a question or answer."""
    return msgspec.json.encode(message)


def read_history_question(body: bytes) -> HistoryQuestion:
    """Read the question in the body of a verified request. Raises Malformed."""
    try:
        question: HistoryQuestion = _QUESTIONS.decode(body)
    except (ValueError, RecursionError) as error:
        why = str(error)[:200] if isinstance(error, msgspec.ValidationError) else "not JSON"
        raise Malformed(f"the question cannot be read: {why}") from None
    return question


R = TypeVar("R", WitnessAnswer, KeysAnswer, ConsistencyAnswer, TilesAnswer, NoteAnswer, RangeAnswer, ProveAnswer)


def read_history_answer(body: bytes, kind: type[R]) -> R:
    """Read the body of an answer, which must be of this `kind`. Raises BadAnswer."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer does not have the form that the question requires", reason="no_reply") from None


def ask_witness(offer: Offer, notes: tuple[str, ...] = ()) -> WitnessQuestion:
    """Return the question that offers a checkpoint to a witness."""
    note, opening = offer.note.encode().decode(), _write_opening(offer)
    return WitnessQuestion(note=note, old=offer.old, proof=write_hashes(offer.proof), opening=opening, notes=notes)


def answer_note(offer: Offer) -> NoteAnswer:
    """Return the answer with a checkpoint, as it would be offered to the node that asks for it."""
    note = offer.note.encode().decode()
    return NoteAnswer(note=note, proof=write_hashes(offer.proof), opening=_write_opening(offer))


def _write_opening(offer: Offer) -> OpeningProof | None:
    if not offer.opening:
        return None
    rotations = tuple(entry[1:].decode() for entry in offer.rotations)
    return OpeningProof(offer.opening[1:].decode(), write_hashes(offer.opening_path), rotations)


def read_offer(message: WitnessQuestion | NoteAnswer, old: int | None = None) -> Offer:
    """Return the checkpoint that a message offers, of which nothing is proven yet. Raises MalformedHistory.

    `old` is given for an answer: the size in its question.
    """
    opening = message.opening
    return Offer(
        note=read_note(message.note.encode(errors="replace")),
        old=message.old if isinstance(message, WitnessQuestion) else old or 0,
        proof=read_hashes(message.proof, "the consistency proof"),
        opening=_read_entry(opening.note) if opening else b"",
        opening_path=read_hashes(opening.path, "the path of the opening entry") if opening else (),
        rotations=tuple(map(_read_entry, opening.rotations)) if opening else (),
    )


def _read_entry(note: str) -> bytes:
    return OPENING_ENTRY + note.encode(errors="replace")


def write_hashes(hashes: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return hashes as a message has them."""
    return tuple(map(write_base64, hashes))


def read_hashes(texts: tuple[str, ...], what: str) -> tuple[bytes, ...]:
    """Return the hashes of a proof. Raises MalformedHistory."""
    return tuple(read_hash(text, f"hash {number} of {what}") for number, text in enumerate(texts, 1))


def read_leaves(answer: TilesAnswer, question: TilesQuestion) -> list[bytes]:
    """Return the leaf hashes of an answer, of which nothing is proven yet. Raises MalformedHistory.

    There must be as many as the question asks for, so that each answer gets the asking node further.
    """
    numbers = range(question.first, -(-question.end // TILE_WIDTH))
    if len(answer.tiles) != len(numbers):
        raise MalformedHistory(
            f"the answer has {len(answer.tiles)} tiles of {question.tree}, not {len(numbers)}", reason="tiles"
        )
    found = list[bytes]()
    for number, text in zip(numbers, answer.tiles, strict=True):
        address = TileAddress(0, number, min(question.end - number * TILE_WIDTH, TILE_WIDTH))
        found += read_tile(read_base64(text, address.path()), address)
    return found


def read_cosignature(line: str, text: str) -> NoteSignature:
    """Return the signature line of a cosignature of this text, which is not verified. Raises MalformedHistory."""
    note = read_note(f"{text}\n{line}".encode(errors="replace"))
    if len(note.signatures) != 1:
        raise MalformedHistory(f"an answer has one cosignature, not {len(note.signatures)}", reason="note")
    return note.signatures[0]


def fit_notes(notes: list[str]) -> tuple[str, ...]:
    """Return the first notes, as many as one message carries."""
    size, found = 0, list[str]()
    for note in notes[:MOST_NOTES]:
        size += len(note.encode())
        if size > MOST_NOTE_BYTES:
            break
        found.append(note)
    return tuple(found)
