"""The questions and answers of v2 by which a sender finds out which of its events a receiver holds, and their sums.

The two nodes can identify an event only by its bytes, because positions of the sender's log are not valid in the
receiver's log. So both put the fingerprints of the same events into the same buckets, by the minute of observation and
the first bits of the fingerprint, and compare the count and the sum of each bucket. The ids of differing buckets are
requested then. Partial sums add up to the total, so no node has to read everything at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from struct import unpack
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from federation.errors import BadAnswer, Malformed
from federation.event import RequiredText, micros, require_moment
from federation.loops import decode_path
from federation.peers import MAX_TEXT, SECOND
from federation.ranges import Mark, Position
from federation.returned import EventsQuery, ReturnedEvents
from federation.selector import Selector

MINUTE: Final = 60 * SECOND
MOST_PARTS: Final = 1 << 16
MOST_MINUTES: Final = 1 << 24
MOST_BUCKETS: Final = 1 << 14
"""Approximate limit of buckets in an answer, and exact limit in a question."""
MOST_ASKED: Final = 5_000
"""Maximum number of ids in one question."""
MOST_LISTED: Final = 10_000
"""Approximate limit of events in one answer."""
MOST_FILTERS: Final = 1_000
"""Maximum number of types, and of subject prefixes, in one question."""
QUESTION_BYTES: Final = 4 << 20
"""Maximum size of a question in bytes."""

WHOLE: Final = 1 << 64
"""The modulus of sums of fingerprints."""
_MASK: Final = WHOLE - 1
_ONE: Final = 1 << 96
"""A total is one number with the count above and the sum below this unit: adding needs one operation."""
LATE: Final = -(1 << 80)
"""Keys up to this value do not identify a bucket: their events were observed before the range in question."""
_OBSERVED: Final = ',"observedAt":"'

Count = Annotated[int, Meta(ge=0)]
Fingerprint = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
"""64 bits as 16 hexadecimal digits: some readers of JSON cannot represent such numbers."""


# --- questions ----------------------------------------------------------------------------------------------------


class StateQuery(Struct, frozen=True, tag_field="ask", tag="state"):
    """Asks for the receiver's `State`: the end of its log, and the mark and latest gaps of the asking node's link."""


class RecordScope(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects the receiver's records in question: those that came from the asking node and match the selector.

    With `own`, those that entered a log first at the asking node, by any path; otherwise also those that it relayed.
    `since` is the first minute of observation that is included, in minutes since 1970; None for all.
    """

    own: bool = True
    types: Annotated[tuple[str, ...], Meta(max_length=MOST_FILTERS)] = ()
    subject_prefixes: Annotated[tuple[str, ...], Meta(max_length=MOST_FILTERS)] = ()
    since: int | None = None

    @property
    def selector(self) -> Selector:
        return Selector.of(types=self.types, subject_prefixes=self.subject_prefixes)


class Grain(Struct, frozen=True):
    """The size of the buckets: how many minutes of observation a slot has, and how many parts.

    `parts` is a power of two: the first bits of an event's fingerprint select its part.
    """

    minutes: Annotated[int, Meta(ge=1, le=MOST_MINUTES)] = 1
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)] = 1

    def __post_init__(self) -> None:
        if self.parts & (self.parts - 1):
            raise ValueError(f"parts must be a power of two, not {self.parts}")

    def key(self, bucket: tuple[int, int]) -> int:
        """Return the key of a bucket (slot, part): both as one number."""
        return bucket[0] * self.parts + bucket[1]

    def bucket(self, key: int) -> tuple[int, int]:
        """Return the bucket (slot, part) with this key."""
        return divmod(key, self.parts)


class SumsQuery(Struct, frozen=True, kw_only=True, tag_field="ask", tag="sums"):
    """Asks for the `Sums` of `(after, upto]` of the receiver's log; `history` is the epoch of these positions."""

    history: RequiredText
    after: Position
    upto: Position
    what: RecordScope
    grain: Grain


Bucket = tuple[int, Annotated[int, Meta(ge=0, lt=MOST_PARTS)]]
"""A slot and a part."""


class IdsQuery(Struct, frozen=True, kw_only=True, tag_field="ask", tag="ids"):
    """Asks which events in `(after, upto]` of the receiver's log are in these buckets."""

    history: RequiredText
    after: Position
    upto: Position
    what: RecordScope
    grain: Grain
    buckets: Annotated[tuple[Bucket, ...], Meta(min_length=1, max_length=MOST_BUCKETS)]


class KnownQuery(Struct, frozen=True, kw_only=True, tag_field="ask", tag="known", omit_defaults=True):
    """Asks which of these ids the receiver does not know, and for which of them it knows the id but no longer stores
    the event.

    With `fingerprints`, one for each id, it also asks for which ids the receiver's latest record has another
    fingerprint; with `what`, too, which of the others are none of the records that `what` selects.
    """

    ids: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEXT)], ...], Meta(min_length=1, max_length=MOST_ASKED)]
    fingerprints: tuple[Fingerprint, ...] = ()
    what: RecordScope | None = None

    def __post_init__(self) -> None:
        if self.fingerprints and len(self.fingerprints) != len(self.ids):
            raise ValueError("give a fingerprint for every id, or for none")


Question = StateQuery | SumsQuery | IdsQuery | KnownQuery | EventsQuery


# --- answers ------------------------------------------------------------------------------------------------------


class ReportedGap(Struct, frozen=True, kw_only=True, rename="camel"):
    """A gap in the receiver's copy of the asking node's positions: the range `(after, upto]` in `epoch`.

    `reason`: `lost`, the asking node reported that it cannot send this range; `taken_back`, the asking node's log was
    reset to a position before events that it had sent, and this is the range of its first batch after that.
    """

    epoch: str
    after: Position
    upto: Position
    reason: str
    recorded_at: datetime

    def __post_init__(self) -> None:
        require_moment(self.recorded_at)


class State(Struct, frozen=True, kw_only=True):
    """Answers StateQuery: epoch (`history`) and last position (`upto`) of the receiver's log, and the link's mark.

    `since` is when the group's oldest stored record was recorded, or the present if none is stored; None if retention
    has evicted nothing. `gaps` are the link's latest ones, oldest first.
    """

    history: str
    upto: Position
    mark: Mark | None
    since: datetime | None = None
    gaps: tuple[ReportedGap, ...] = ()

    def __post_init__(self) -> None:
        if self.since is not None:
            require_moment(self.since)


class Sums(Struct, frozen=True):
    """Slot, part, count and sum of the fingerprints for each bucket that is not empty.

    `next` is the position up to which the log was read, None when the answer is complete.
    """

    buckets: tuple[tuple[int, int, Count, Fingerprint], ...]
    next: Position | None = None


class ListedEvent(NamedTuple):
    """The id and the fingerprint of an event in a bucket."""

    id: str
    fingerprint: Fingerprint


class Ids(Struct, frozen=True):
    """The events of the requested buckets, a refreshed one once for each stored version.

    `next` is the position up to which the log was read, None when the answer is complete.
    """

    events: tuple[ListedEvent, ...]
    next: Position | None = None


class KnownEvents(Struct, frozen=True):
    """Indexes in the question of the ids that are unknown, and of those whose record retention has evicted (`gone`).

    `other`: indexes of the ids whose latest record has another fingerprint than the question says. `by_another_path`:
    those whose latest record has the same one, and is not selected by the question's `what`.
    """

    unknown: tuple[Count, ...] = ()
    gone: tuple[Count, ...] = ()
    other: tuple[Count, ...] = ()
    by_another_path: tuple[Count, ...] | UnsetType = UNSET


Reply = State | Sums | Ids | KnownEvents | ReturnedEvents

_QUESTIONS: Final = msgspec.json.Decoder(Question)


def encode_question(question: Question) -> bytes:
    """Return the body of a question."""
    return msgspec.json.encode(question)


def read_question(body: bytes) -> Question:
    """Read the question in the body of a verified request. Raises Malformed."""
    try:
        question: Question = _QUESTIONS.decode(body)
    except (ValueError, RecursionError) as error:
        why = str(error)[:200] if isinstance(error, msgspec.ValidationError) else "not JSON"
        raise Malformed(f"the question cannot be read: {why}") from None
    if isinstance(question, SumsQuery | IdsQuery) and question.after > question.upto:
        raise Malformed(f"the question runs backwards: after {question.after} is greater than upto {question.upto}")
    if isinstance(question, IdsQuery) and any(part >= question.grain.parts for _, part in question.buckets):
        raise Malformed(f"the part of each bucket must be less than {question.grain.parts}, the parts of the grain")
    return question


def encode_reply(reply: Reply) -> bytes:
    """Return the body of an answer."""
    return msgspec.json.encode(reply)


R = TypeVar("R", State, Sums, Ids, KnownEvents, ReturnedEvents)


def read_reply(body: bytes, kind: type[R]) -> R:
    """Read the body of an answer, which must be of this `kind`. Raises BadAnswer."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer does not have the form that the question requires", reason="no_reply") from None


# --- whose records ------------------------------------------------------------------------------------------------


class PathFilter(NamedTuple):
    """Selects records that came from `node`: with `own`, if the path begins there; else, if it contains `node`."""

    node: str
    own: bool

    def takes(self, text: str) -> bool:
        """Return whether a record with this encoded path is selected."""
        path = decode_path(text)
        return bool(path) and (path[0] == self.node if self.own else self.node in path)


# --- sums ---------------------------------------------------------------------------------------------------------


def minute_of(body: str) -> int:
    """Return the minute since 1970 in which a canonical event was observed."""
    return _minute(body[(at := body.rindex(_OBSERVED) + len(_OBSERVED)) : at + 16])


def _minute(text: str) -> int:
    return micros(datetime.fromisoformat(f"{text}:00+00:00")) // MINUTE


def places_of(bodies: Sequence[str], grain: Grain, since: int | None = None) -> tuple[list[int], Sequence[int]]:
    """Return two columns for canonical events: the keys of their buckets, and their fingerprints as unsigned numbers.

    An event observed before `since` (minutes since 1970) is in no bucket: its key is below LATE, which is negative.
    """
    begin, shift = len(_OBSERVED), 65 - grain.parts.bit_length()
    bases = _Bases(grain, since)
    texts = [body[(at := body.rindex(_OBSERVED) + begin) : at + 16] for body in bodies]
    # The fingerprints, without a call for each.
    numbers = unpack(f">{len(bodies)}Q", b"".join([sha256(body.encode()).digest()[:8] for body in bodies]))
    return [bases[text] + (number >> shift) for text, number in zip(texts, numbers, strict=True)], numbers


def add_up(bodies: Sequence[str], grain: Grain, totals: dict[int, int], *, since: int | None = None) -> None:
    """Add canonical events to `totals`, by the key of their buckets, except those observed before `since`."""
    add_places(*places_of(bodies, grain, since), totals)


def add_places(keys: Iterable[int], fingerprints: Iterable[int], totals: dict[int, int]) -> None:
    """Add events to `totals`, given as the two columns of `places_of`."""
    for key, number in zip(keys, fingerprints, strict=True):
        if key > LATE:
            totals[key] = totals.get(key, 0) + number + _ONE


class _Bases(dict[str, int]):
    """Caches, for each minute (as text), the key of the first part of its slot.

    A key below LATE if the minute is before `since`.
    """

    def __init__(self, grain: Grain, since: int | None) -> None:
        self._grain = grain
        self._since = since

    def __missing__(self, text: str) -> int:
        minute = _minute(text)
        late = self._since is not None and minute < self._since
        self[text] = found = 2 * LATE if late else minute // self._grain.minutes * self._grain.parts
        return found


def count_in(total: int) -> int:
    """Return the count in a total, which packs the number of events and the sum of their fingerprints."""
    return total >> 96


def sum_in(total: int) -> int:
    """Return the sum of the fingerprints in a total."""
    return total & _MASK


def total_of(fingerprints: Iterable[int]) -> int:
    """Return the total of some fingerprints: their count and their sum in one number."""
    return sum(_ONE | (number & _MASK) for number in fingerprints)


def minus(one: int, other: int) -> int:
    """Return the difference of two totals, 0 if they are equal: its count may be negative, its sum is modulo 2^64."""
    return (count_in(one) - count_in(other)) * _ONE + (sum_in(one) - sum_in(other)) % WHOLE


def fold(totals: Mapping[int, int], fine: Grain, coarse: Grain) -> dict[int, int]:
    """Return these totals added up into the coarser buckets of `coarse`."""
    slots, parts = coarse.minutes // fine.minutes, fine.parts // coarse.parts
    found: dict[int, int] = {}
    for key, total in totals.items():
        slot, part = fine.bucket(key)
        at = slot // slots * coarse.parts + part // parts
        found[at] = found.get(at, 0) + total
    return found


def coarser(totals: Mapping[int, int], grain: Grain) -> Grain:
    """Return the next coarser grain.

    It has half the parts if slots have two or more buckets on average, else twice the minutes. If doubling would
    exceed `MOST_MINUTES`, the parts are halved instead.
    """
    slots = len({key // grain.parts for key in totals})
    if grain.parts > 1 and (len(totals) >= 2 * slots or grain.minutes * 2 > MOST_MINUTES):
        return Grain(grain.minutes, grain.parts // 2)
    return Grain(grain.minutes * 2, grain.parts)


def show_sums(totals: Mapping[int, int], grain: Grain, upto: int | None) -> Sums:
    """Return the answer with these totals by bucket key; `upto` becomes its `next`."""
    return Sums(
        tuple([(*grain.bucket(key), count_in(total), show_fingerprint(total)) for key, total in totals.items()]), upto
    )


def read_sums(sums: Sums, fine: Grain, coarse: Grain, totals: dict[int, int]) -> None:
    """Add the sums of an answer, which are in the grain `fine`, to `totals` in the same or a coarser grain."""
    slots, parts = coarse.minutes // fine.minutes, fine.parts // coarse.parts
    for slot, part, count, digits in sums.buckets:
        key = slot // slots * coarse.parts + part // parts
        totals[key] = totals.get(key, 0) + count * _ONE + int(digits, 16)


def show_fingerprint(number: int) -> str:
    """Return a fingerprint, or the sum in a total, as 16 hexadecimal digits."""
    return f"{number & _MASK:016x}"
