"""Encodes batches as lines, and decodes them from lines or runs (`lines`, `runs`). The hot path of v2.

An event's canonical bytes are stored as received and forwarded unchanged: nothing here encodes an event to send it. A
receiver normally decodes each event once. Lines are decoded in chunks, because msgspec decodes many in one call, and
because texts beyond 128 KiB make the allocator call the system every time: together this halves the cost of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from operator import ge
from typing import Final, NamedTuple

import msgspec

from federation.errors import BadEvent, Malformed, TooLarge
from federation.event import DECODER, ENCODER, UNSET, Event, decode_canonical
from federation.keys import Key
from federation.lines import Bodies, BodyRun, encode_lines, split_line
from federation.loops import check_inbound, decode_path
from federation.peers import BATCH_TYPE, MAX_TEXT, RUNS_TYPE, Limits
from federation.ranges import MAX_POSITION, Range
from federation.runs import Run, read_runs
from federation.wire import BatchHeader, Refusal

_SPAN: Final = 64 * 1024
"""Approximate number of bytes that are decoded in one call."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line: the record's position at the sender, its encoded path, and the event as text and as a value."""

    position: int
    path: str
    body: str
    event: Event


Origin = tuple[str, str, str]
"""The group, source and encoded path of a line."""


@dataclass(slots=True)
class Lines:
    """Lines as columns, their bodies as joined texts (`pieces`), and the distinct types and origins in them.

    The hot path creates no `Line` and keeps no decoded event: an object costs half as much if it is freed while it is
    still in the processor's cache. `expires_first` is the earliest expiry, None if no event expires.
    """

    positions: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    pieces: list[BodyRun] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    types: set[str] = field(default_factory=set)
    origins: set[Origin] = field(default_factory=set)
    expires_first: datetime | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Line]:
        """Yield each line, decoding its event again."""
        bodies = self.bodies
        return map(Line, self.positions, self.paths, bodies, map(DECODER.decode, bodies))

    @property
    def bodies(self) -> Bodies:
        """Return the canonical text of each line's event, in order."""
        return Bodies(self.pieces)

    def add(self, positions: Iterable[int], paths: Sequence[str], text: str, events: Sequence[Event]) -> None:
        """Append lines, given as columns of the same length. `text`: the bodies, each ended by a line feed."""
        self.positions.extend(positions)
        self.paths.extend(paths)
        self.pieces.append(BodyRun(text, len(events)))
        self.ids.extend([event.id for event in events])
        self.types.update([event.type for event in events])
        groups, sources = [event.group for event in events], [event.source_node for event in events]
        distinct = set(groups), set(sources), set(paths)
        # If two of the three are equal in all lines, every combination occurs, and no line has to be examined.
        self.origins.update(
            product(*distinct) if sorted(map(len, distinct))[1] == 1 else zip(groups, sources, paths, strict=True)
        )
        expiring = [event.expires_at for event in events if event.expires_at != UNSET]
        if expiring:
            first = min(expiring)
            self.expires_first = first if self.expires_first is None else min(first, self.expires_first)


class Batch(NamedTuple):
    """The lines of a batch that passed all checks so far, and refusals of the others; both by ascending position."""

    lines: Lines
    refused: list[Refusal]


def encode_batch(records: Iterable[tuple[int, str, str]]) -> bytes:
    """Return the body of a batch with one line per (position, path, body). That positions ascend is not checked."""
    return encode_lines(records).encode()


def read_batch(body: bytes, header: BatchHeader, key: Key, limits: Limits) -> Batch:
    """Decode the body of a verified batch: the lines that the receiving node may accept, and those that it refuses.

    Only the log can detect `id_conflict`, so it is not judged here. Raises Malformed, TooLarge.
    """
    lines, unreadable = decode_batch(body, header.range, limits, form=header.form)
    lines, refused = judge(lines, header, key, limits)
    return Batch(lines, sorted(unreadable + refused, key=lambda refusal: refusal.position))


def decode_batch(body: bytes, covered: Range, limits: Limits, *, form: str = BATCH_TYPE) -> Batch:
    """Decode a body of lines or runs (`form`); refuse lines with an invalid event or path.

    An event too large or not canonical is invalid, too. Whose events are accepted is left to `judge`.

    Raises Malformed when the framing is broken or positions do not ascend within the claimed range, TooLarge for too
    many bytes or lines.
    """
    if len(body) > limits.batch_bytes:
        raise TooLarge(f"a batch has at most {limits.batch_bytes} bytes", limit=limits.batch_bytes, unit="bytes")
    if form == RUNS_TYPE:
        return _decode_runs(body, covered, limits)
    try:
        return _decode(body, covered, limits)
    except Malformed:
        # reported first, although counting in advance costs as much as splitting
        if body.count(b"\n") > limits.batch_events:
            raise _too_many(limits) from None
        raise


def _decode(body: bytes, covered: Range, limits: Limits) -> Batch:
    if body and not body.endswith(b"\n"):
        raise Malformed("the last line of the batch does not end with a line feed")
    batch = Batch(Lines(), [])
    last = covered.after
    start = 0
    while start < len(body):
        end = _end_of_span(body, start)
        chunk = _split(body[start:end], last)
        _read_chunk(chunk, _decode_together(chunk.events, chunk.paths, limits), limits, batch)
        if len(batch.lines) + len(batch.refused) > limits.batch_events:
            raise _too_many(limits)
        last, start = chunk.positions[-1], end
    _require_within(covered, last)
    return batch


def _decode_runs(body: bytes, covered: Range, limits: Limits) -> Batch:
    batch = Batch(Lines(), [])
    last, records = covered.after, 0
    for run in read_runs(body):
        records += run.records
        if records > limits.batch_events:
            raise _too_many(limits)
        if run.position <= last:
            raise Malformed(f"the positions after {last} do not rise from run to run")
        _read_run(run, limits, batch)
        last = run.last
    _require_within(covered, last)
    return batch


def _read_run(run: Run, limits: Limits, batch: Batch) -> None:
    start, position = 0, run.position
    while start < len(run.events):
        end = _end_of_span(run.events, start)
        raw = run.events[start:end]
        events = _decode_together(raw, (run.path,), limits)
        records = len(events) if events is not None else raw.count(b"\n")  # counting takes as long as the digest
        if position + records > run.last + 1:
            break
        _read_chunk(_Chunk(range(position, position + records), [run.path] * records, raw), events, limits, batch)
        start, position = end, position + records
    if start < len(run.events) or position != run.last + 1:
        raise Malformed(
            f"the run at position {run.position} does not have the {run.records} events that its head states"
        )


def _end_of_span(text: bytes, start: int) -> int:
    """Return the index after the last line from `start` on that ends within 64 KiB; if none does, after the first."""
    return text.rfind(b"\n", start, start + _SPAN) + 1 or text.index(b"\n", start) + 1


def _require_within(covered: Range, last: int) -> None:
    if last > (MAX_POSITION if covered.repair else covered.upto):
        raise Malformed(f"position {last} lies beyond the range of the batch")


def _too_many(limits: Limits) -> TooLarge:
    return TooLarge(f"a batch has at most {limits.batch_events} lines", limit=limits.batch_events, unit="events")


class _Chunk(NamedTuple):
    """Columns of some lines; a line feed ends each of the `events`."""

    positions: Sequence[int]
    paths: Sequence[str]
    events: bytes


def _split(body: bytes, last: int) -> _Chunk:
    """Split whole lines into columns.

    Raises Malformed for a line without its three parts, and unless the positions ascend, beginning above `last`.
    """
    # Bytes that are not UTF-8 affect their own line only: they become surrogates, which no canonical event contains.
    rows = map(split_line, body.decode("utf-8", "surrogateescape").split("\n")[:-1])
    try:
        digits, paths, bodies = zip(*rows, strict=True)
    except ValueError:
        raise Malformed("a line of the batch is not position, path and event") from None
    events = "\n".join([*bodies, ""]).encode("utf-8", "surrogateescape")
    try:
        first = int(digits[0])
        run = range(first, first + len(digits))  # usually they are consecutive
        if first > last and (*map(str, run),) == digits:
            return _Chunk(run, paths, events)
        positions = [*map(int, digits)]
    except ValueError:
        raise Malformed(f"a position after {last} is not a number") from None
    # int() accepts more than encoders write: signs, spaces, leading zeros, digits of other scripts.
    if (*map(str, positions),) != digits or any(map(ge, [last, *positions], positions)):
        raise Malformed(f"the positions after {last} do not rise from line to line")
    return _Chunk(positions, paths, events)


def _read_chunk(chunk: _Chunk, events: Sequence[Event] | None, limits: Limits, batch: Batch) -> None:
    """Add the lines of a chunk to the batch, invalid lines as refusals.

    `events` are the decoded events of all lines; None if each line must be examined individually.
    """
    if events is not None:
        batch.lines.add(chunk.positions, chunk.paths, chunk.events.decode(), events)
        return
    bodies = chunk.events.decode("utf-8", "surrogateescape").split("\n")[:-1]
    for position, path, body in zip(chunk.positions, chunk.paths, bodies, strict=True):
        event, reason = _decode_alone(path, body, limits)
        if event is None:
            batch.refused.append(Refusal(position, _readable_id(body), reason))
        else:
            batch.lines.add((position,), (path,), f"{body}\n", (event,))


def _decode_together(raw: bytes, paths: Sequence[str], limits: Limits) -> list[Event] | None:
    """Return the events of a chunk, decoded at once; None if a line may be invalid, so that each must be examined."""
    if len(raw) > limits.event_bytes:
        return None
    try:
        for path in set(paths):
            decode_path(path)
        events = DECODER.decode_lines(raw)
    except (ValueError, RecursionError, Malformed):
        return None
    # Equal as a whole, hence line by line: canonical events contain no line feed.
    if ENCODER.encode_lines(events) != raw or UNSET in [event.observed_at for event in events]:
        return None
    for event in events:
        if event.observed_at.tzinfo is not UTC or event.expires_at.tzinfo is not UTC or not event.dedupe_key:
            return None
    escapes = b"\\" in raw
    if escapes and b"\\u0000" in raw:
        return None
    # White space at an edge is a blank, or escaped, or not ASCII; most chunks have none of these.
    if (escapes or b" " in raw or not raw.isascii()) and any(map(_has_edges, events)):
        return None
    return events


def _has_edges(event: Event) -> bool:
    # strip() removes slightly more than the wire's white space: a false alarm is harmless, the line is examined again.
    return (
        event.id != event.id.strip()
        or event.source_node != event.source_node.strip()
        or event.subject != event.subject.strip()
        or event.dedupe_key != event.dedupe_key.strip()
        or event.type != event.type.strip()
        or event.group != event.group.strip()
    )


def _decode_alone(path: str, body: str, limits: Limits) -> tuple[Event | None, str]:
    if len(body.encode("utf-8", "surrogateescape")) > limits.event_bytes:
        return None, "too_large"
    try:
        event = decode_canonical(body)
        decode_path(path)
    except BadEvent as error:
        return None, error.refusal
    except Malformed:
        return None, "invalid"
    return event, ""


class _OnlyId(msgspec.Struct):
    id: str


def _readable_id(body: str) -> str:
    try:
        return msgspec.json.decode(body, type=_OnlyId).id[:MAX_TEXT]
    except (ValueError, RecursionError):
        return ""


def judge(lines: Lines, header: BatchHeader, key: Key, limits: Limits) -> Batch:
    """Divide lines into those that `header.to_node` may accept from `header.from_node` and `key`, and refusals."""
    verdicts = {origin: _judge_origin(*origin, header, key, limits) for origin in lines.origins}
    if not any(verdicts.values()):
        return Batch(lines, [])
    batch = Batch(Lines(), [])
    for line in lines:
        reason = verdicts[line.event.group, line.event.source_node, line.path]
        if reason is None:
            batch.lines.add((line.position,), (line.path,), f"{line.body}\n", (line.event,))
        else:
            batch.refused.append(Refusal(line.position, line.event.id, reason))
    return batch


def _judge_origin(group: str, source: str, path: str, header: BatchHeader, key: Key, limits: Limits) -> str | None:
    if group != header.group:
        return "wrong_group"
    where = check_inbound(
        decode_path(path), source, node=header.to_node, sender=header.from_node, max_hops=limits.max_hops
    )
    if where != "own_source" and not key.may_speak_for(source):
        return "source_not_allowed"
    return where
