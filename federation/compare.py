"""Comparing what two nodes hold of one of them: the questions of v2, their answers, and the sums they are made of.

Sender and receiver know an event by its bytes alone: the sender's positions mean nothing in the receiver's log. So both
put the fingerprints of the same events into the same buckets, by the minute an event was observed and by the first bits
of its fingerprint, and compare for each bucket how many there are and what they add up to. Where a bucket differs, its
ids are asked for. Sums of parts add up to the sum of the whole: no node has to read everything at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from struct import unpack
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from federation.errors import BadAnswer, Malformed
from federation.event import RequiredText, micros, require_moment
from federation.loops import decode_path
from federation.peers import MAX_TEXT, SECOND
from federation.ranges import Mark, Position
from federation.selector import Selector

MINUTE: Final = 60 * SECOND
MOST_PARTS: Final = 1 << 16
MOST_MINUTES: Final = 1 << 24
MOST_BUCKETS: Final = 1 << 14
"""Buckets of an answer, about, and of a question at most."""
MOST_ASKED: Final = 5_000
"""Ids of one question."""
MOST_LISTED: Final = 10_000
"""Events of one answer, about."""
MOST_FILTERS: Final = 1_000
"""Types, and beginnings of subjects, in one question."""
QUESTION_BYTES: Final = 4 << 20
"""Bytes of a question."""

WHOLE: Final = 1 << 64
"""Fingerprints are added up modulo this."""
_MASK: Final = WHOLE - 1
_ONE: Final = 1 << 96
"""A total holds a count above and a sum below this: one number for both makes adding cheap."""
LATE: Final = -(1 << 80)
"""Keys below are those of no bucket."""
_OBSERVED: Final = ',"observedAt":"'

Count = Annotated[int, Meta(ge=0)]
Fingerprint = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
"""64 bits as 16 hexadecimal digits: not every reader of JSON keeps a number of that size."""


# --- questions ----------------------------------------------------------------------------------------------------


class AskState(Struct, frozen=True, tag_field="ask", tag="state"):
    """Where does the link stand, and where does your log?"""


class RecordScope(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which records of the receiver are meant: those that came from the asking node, and fit the selector.

    With `own`, those that entered a log at the asking node, whichever way they came; otherwise also those that merely
    passed it. `since` is the minute of observation from which on, counted from 1970.
    """

    own: bool = True
    types: Annotated[tuple[str, ...], Meta(max_length=MOST_FILTERS)] = ()
    subject_prefixes: Annotated[tuple[str, ...], Meta(max_length=MOST_FILTERS)] = ()
    since: int | None = None

    @property
    def selector(self) -> Selector:
        return Selector.of(types=self.types, subject_prefixes=self.subject_prefixes)


class Grain(Struct, frozen=True):
    """How fine the buckets are: so many minutes of observation each, and in how many parts, a power of two."""

    minutes: Annotated[int, Meta(ge=1, le=MOST_MINUTES)] = 1
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)] = 1

    def __post_init__(self) -> None:
        if self.parts & (self.parts - 1):
            raise ValueError("parts is a power of two")

    def key(self, bucket: tuple[int, int]) -> int:
        """A bucket as one number."""
        return bucket[0] * self.parts + bucket[1]

    def bucket(self, key: int) -> tuple[int, int]:
        """The slot and the part of a key."""
        return divmod(key, self.parts)


class AskSums(Struct, frozen=True, kw_only=True, tag_field="ask", tag="sums"):
    """What do the fingerprints in `(after, upto]` of your log add up to? `history` names the epoch of the positions."""

    history: RequiredText
    after: Position
    upto: Position
    what: RecordScope
    grain: Grain


Bucket = tuple[int, Annotated[int, Meta(ge=0, lt=MOST_PARTS)]]
"""The slot and the part."""


class AskIds(Struct, frozen=True, kw_only=True, tag_field="ask", tag="ids"):
    """Which events in `(after, upto]` of your log are in these buckets?"""

    history: RequiredText
    after: Position
    upto: Position
    what: RecordScope
    grain: Grain
    buckets: Annotated[tuple[Bucket, ...], Meta(min_length=1, max_length=MOST_BUCKETS)]


class AskKnown(Struct, frozen=True, kw_only=True, tag_field="ask", tag="known", omit_defaults=True):
    """Which of these ids do you not know, and, where `fingerprints` are given, which under another event?"""

    ids: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEXT)], ...], Meta(min_length=1, max_length=MOST_ASKED)]
    fingerprints: tuple[Fingerprint, ...] = ()

    def __post_init__(self) -> None:
        if self.fingerprints and len(self.fingerprints) != len(self.ids):
            raise ValueError("there is a fingerprint for each id, or none")


Question = AskState | AskSums | AskIds | AskKnown


# --- answers ------------------------------------------------------------------------------------------------------


class ReportedGap(Struct, frozen=True, kw_only=True, rename="camel"):
    """A range `(after, upto]` of the asking node's positions that did not arrive, as the receiver was told."""

    epoch: str
    after: Position
    upto: Position
    reason: str
    recorded_at: datetime

    def __post_init__(self) -> None:
        require_moment(self.recorded_at)


class State(Struct, frozen=True, kw_only=True):
    """Where the link stands, and the receiver's log: `upto` is its last position in the history.

    `since` is when the oldest record was recorded that retention has left, None where it has removed nothing. `gaps`
    are the newest at most.
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
    """Slot, part, how many, and the sum of their fingerprints, for each bucket that is not empty.

    `next` is the position up to which it was looked, None when that was all.
    """

    buckets: tuple[tuple[int, int, Count, Fingerprint], ...]
    next: Position | None = None


class ListedEvent(NamedTuple):
    """An event of a bucket."""

    id: str
    fingerprint: Fingerprint


class Ids(Struct, frozen=True):
    """The events of the buckets asked for, refreshes beside what they refresh. `next` as for `Sums`."""

    events: tuple[ListedEvent, ...]
    next: Position | None = None


class KnownEvents(Struct, frozen=True):
    """By their place in the question: ids that are not known, and those whose record retention has removed.

    `other`: the latest record under the id is not the one of the fingerprint.
    """

    unknown: tuple[Count, ...] = ()
    gone: tuple[Count, ...] = ()
    other: tuple[Count, ...] = ()


Reply = State | Sums | Ids | KnownEvents

_QUESTIONS: Final = msgspec.json.Decoder(Question)


def encode_question(question: Question) -> bytes:
    """The body of a question."""
    return msgspec.json.encode(question)


def read_question(body: bytes) -> Question:
    """The question in the body of a verified request. Raises Malformed."""
    try:
        question: Question = _QUESTIONS.decode(body)
    except (ValueError, RecursionError) as error:
        why = str(error)[:200] if isinstance(error, msgspec.ValidationError) else "not JSON"
        raise Malformed(f"the question cannot be read: {why}") from None
    if isinstance(question, AskSums | AskIds) and question.after > question.upto:
        raise Malformed("the question runs backwards")
    if isinstance(question, AskIds) and any(part >= question.grain.parts for _, part in question.buckets):
        raise Malformed("the question names a part that there is not")
    return question


def encode_reply(reply: Reply) -> bytes:
    """The body of an answer."""
    return msgspec.json.encode(reply)


R = TypeVar("R", State, Sums, Ids, KnownEvents)


def read_reply(body: bytes, kind: type[R]) -> R:
    """The answer of this kind. Raises BadAnswer."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer is not to the question", reason="no_reply") from None


# --- whose records ------------------------------------------------------------------------------------------------


class PathFilter(NamedTuple):
    """Which records of a receiver came from `node`: with `own`, those whose path begins there, else all it is in."""

    node: str
    own: bool

    def takes(self, text: str) -> bool:
        """Whether a record of this encoded path is meant."""
        path = decode_path(text)
        return bool(path) and (path[0] == self.node if self.own else self.node in path)


# --- sums ---------------------------------------------------------------------------------------------------------


def minute_of(body: str) -> int:
    """The minute since 1970 in which a canonical event was observed."""
    return _minute(body[(at := body.rindex(_OBSERVED) + len(_OBSERVED)) : at + 16])


def _minute(text: str) -> int:
    return micros(datetime.fromisoformat(f"{text}:00+00:00")) // MINUTE


def places_of(bodies: Sequence[str], grain: Grain, since: int | None = None) -> tuple[list[int], Sequence[int]]:
    """For each canonical event the key of its bucket, and its fingerprint as a number from 0.

    What was observed before `since` is in no bucket: its key is below LATE.
    """
    begin, shift = len(_OBSERVED), 65 - grain.parts.bit_length()
    bases = _Bases(grain, since)
    texts = [body[(at := body.rindex(_OBSERVED) + begin) : at + 16] for body in bodies]
    # The fingerprints, without a call for each.
    numbers = unpack(f">{len(bodies)}Q", b"".join([sha256(body.encode()).digest()[:8] for body in bodies]))
    return [bases[text] + (number >> shift) for text, number in zip(texts, numbers, strict=True)], numbers


def add_up(bodies: Sequence[str], grain: Grain, totals: dict[int, int], *, since: int | None = None) -> None:
    """Add canonical events to the totals, by the key of their bucket; those observed before `since` are left out."""
    for key, number in zip(*places_of(bodies, grain, since), strict=True):
        if key > LATE:
            totals[key] = totals.get(key, 0) + number + _ONE


class _Bases(dict[str, int]):
    """The key of the first part of a slot, by the minute as text: few come again and again."""

    def __init__(self, grain: Grain, since: int | None) -> None:
        self._grain = grain
        self._since = since

    def __missing__(self, text: str) -> int:
        minute = _minute(text)
        late = self._since is not None and minute < self._since
        self[text] = found = 2 * LATE if late else minute // self._grain.minutes * self._grain.parts
        return found


def count_in(total: int) -> int:
    """How many events a total is of."""
    return total >> 96


def sum_in(total: int) -> int:
    """What their fingerprints add up to."""
    return total & _MASK


def total_of(prints: Iterable[int]) -> int:
    """The total of some fingerprints."""
    return sum(_ONE | (number & _MASK) for number in prints)


def minus(one: int, other: int) -> int:
    """What is left of a total without another; 0 where they are the same. The count may be below 0."""
    return (count_in(one) - count_in(other)) * _ONE + (sum_in(one) - sum_in(other)) % WHOLE


def fold(totals: Mapping[int, int], fine: Grain, coarse: Grain) -> dict[int, int]:
    """The same totals in coarser buckets."""
    slots, parts = coarse.minutes // fine.minutes, fine.parts // coarse.parts
    found: dict[int, int] = {}
    for key, total in totals.items():
        slot, part = fine.bucket(key)
        at = slot // slots * coarse.parts + part // parts
        found[at] = found.get(at, 0) + total
    return found


def coarser(totals: Mapping[int, int], grain: Grain) -> Grain:
    """The next coarser grain: fewer parts as long as slots are mostly divided, longer slots afterwards."""
    slots = len({key // grain.parts for key in totals})
    if grain.parts > 1 and (len(totals) >= 2 * slots or grain.minutes * 2 > MOST_MINUTES):
        return Grain(grain.minutes, grain.parts // 2)
    return Grain(grain.minutes * 2, grain.parts)


def show_sums(totals: Mapping[int, int], grain: Grain, upto: int | None) -> Sums:
    """The answer that tells these totals."""
    return Sums(
        tuple([(*grain.bucket(key), count_in(total), show_print(total)) for key, total in totals.items()]), upto
    )


def read_sums(sums: Sums, fine: Grain, coarse: Grain, totals: dict[int, int]) -> None:
    """Add what an answer in a fine grain tells to totals in a coarser one, or the same."""
    slots, parts = coarse.minutes // fine.minutes, fine.parts // coarse.parts
    for slot, part, count, digits in sums.buckets:
        key = slot // slots * coarse.parts + part // parts
        totals[key] = totals.get(key, 0) + count * _ONE + int(digits, 16)


def show_print(number: int) -> str:
    """A fingerprint, or the sum in a total, as it is written."""
    return f"{number & _MASK:016x}"
