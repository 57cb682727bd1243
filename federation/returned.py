"""The question of v2 by which a node gets its own events back, after its database was restored from an older copy.

The peer's answer holds the events as stored, and its receipts of the batches that brought them. A receipt states the
digest of its batch, so if the returned events result in the same digest, they are the events of that batch. This is
only a claim of the peer: it is confirmed only by the asking node's own ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from federation.batch import encode_batch
from federation.errors import BadAnswer, BadEvent, Malformed
from federation.event import Event, decode_canonical
from federation.message_signature import content_digest_header
from federation.peers import MAX_TEXT, Limits
from federation.ranges import Position, Range
from federation.runs import Run
from federation.wire import Receipt

MOST_RETURNED: Final = 500
"""Maximum number of ids in one question."""
RETURNED_BYTES: Final = 4 << 20
"""Approximate limit of the bytes of events in one answer, and of the ids of receipts; no larger event is returned."""
MOST_PLACEMENTS: Final = 2
"""Maximum number of positions that are tried as the first position of a batch, if the receiver did not store the
positions."""
MOST_HASHED: Final = 2 * MOST_PLACEMENTS
"""How often `gives_digest` may encode and hash the events of a batch: in two forms at each placement."""
MOST_POSITIONS_TEXT: Final = 32 << 10
"""Maximum number of characters of the stored positions of a batch; positions that would take more are not stored."""

_RECEIPT: Final = msgspec.json.Decoder(Receipt)


class EventsQuery(Struct, frozen=True, tag_field="ask", tag="events"):
    """Asks for those events with these ids that first entered a log at the asking node, and have it as their
    source."""

    ids: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEXT)], ...], Meta(min_length=1, max_length=MOST_RETURNED)]


class ReturnedEvent(Struct, frozen=True, array_like=True):
    """An event in its canonical form. `index`: of its id in the question; `receipt`: index of its receipt, or None."""

    index: Position
    body: str
    receipt: Position | None = None


class BatchReceipt(Struct, frozen=True):
    """The receipt that the peer gave for a batch, as text, the range of the batch, and the ids of its stored events.

    `positions` are those of the events in the sender's log, as `encode_positions` writes them; empty if not known.
    """

    receipt: str
    range: str
    ids: tuple[str, ...]
    positions: str = ""


class ReturnedEvents(Struct, frozen=True, kw_only=True):
    """Answers EventsQuery. Ids of other events, and unknown ones, are left out; `large` are too large for an answer.

    `next` is the index of the first id that was not looked up, None when all were.
    """

    events: tuple[ReturnedEvent, ...]
    receipts: tuple[BatchReceipt, ...] = ()
    large: tuple[Position, ...] = ()
    next: Position | None = None


def check_returned(body: str, event_id: str, *, group: str, node: str, limits: Limits) -> Event:
    """Return the event in an answer to the question for `event_id`. Raises BadAnswer unless it is one of this node.

    This is the one place where a node accepts its own name as the source of an event from another node: it has asked
    for this event by its id. `check_inbound` refuses it everywhere else.
    """
    try:
        event = decode_canonical(body)
    except BadEvent as error:
        raise BadAnswer(f"the event {event_id} cannot be read: {error.message}", reason="bad_event") from None
    if event.id != event_id:
        raise BadAnswer(f"the event {event.id} was returned for the id {event_id}", reason="other_event")
    if event.group != group:
        raise BadAnswer(f"the event {event_id} is of the group {event.group}", reason="wrong_group")
    if event.source_node != node:
        raise BadAnswer(f"the event {event_id} is of the source {event.source_node}, not {node}", reason="other_source")
    if len(body.encode()) > limits.event_bytes:
        words = f"the event {event_id} has over {limits.event_bytes} bytes, the limit of the group"
        raise BadAnswer(words, reason="too_large")
    return event


def read_batch_receipt(stated: BatchReceipt, *, group: str, node: str, peer: str) -> Receipt:
    """Return the receipt, which must be of a batch that `node` sent to `peer`. Raises BadAnswer."""
    try:
        receipt = _RECEIPT.decode(stated.receipt)
        covered = Range.from_header(stated.range)
    except (ValueError, RecursionError, Malformed):
        raise BadAnswer("a receipt in the answer cannot be read", reason="no_receipt") from None
    if (receipt.group, receipt.from_node, receipt.to_node, receipt.epoch, receipt.incarnation) != (
        group,
        node,
        peer,
        covered.epoch,
        covered.incarnation,
    ):
        raise BadAnswer("a receipt in the answer is of another link or range", reason="other_batch")
    return receipt


def encode_positions(positions: Sequence[int]) -> str:
    """Return ascending positions as text: runs of consecutive ones, each `first+number`. Empty if it is too long."""
    if positions and positions[-1] - positions[0] == len(positions) - 1:
        return f"{positions[0]}+{len(positions)}"
    runs: list[str] = []
    first, number = 0, 0
    for position in positions:
        if number and position == first + number:
            number += 1
            continue
        runs += [f"{first}+{number}"] if number else []
        first, number = position, 1
    text = ",".join([*runs, f"{first}+{number}"]) if number else ""
    return text if len(text) <= MOST_POSITIONS_TEXT else ""


def read_positions(text: str) -> list[int]:
    """Return the positions that `encode_positions` wrote; none for a text that is empty, too long or of other form."""
    if len(text) > MOST_POSITIONS_TEXT:
        return []
    runs = [run.partition("+")[::2] for run in text.split(",")]
    if not all(each.isascii() and each.isdigit() and len(each) < 20 for run in runs for each in run):
        return []
    if sum(int(number) for _, number in runs) > Limits().batch_events:
        return []
    return [int(first) + at for first, number in runs for at in range(int(number))]


def gives_digest(receipt: Receipt, covered: Range, bodies: Sequence[str], positions: str = "") -> bool:
    """Return whether these events result in the digest that the receipt states, which shows that they are its batch.

    Where the `positions` of the events in the sender's log are not known, consecutive ones at the beginning and at the
    end of the range are tried. A batch is not recognized if the peer refused one of its events or had it already. The
    whole batch is encoded and hashed up to `MOST_HASHED` times.
    """
    if covered.repair or not bodies or receipt.duplicates or receipt.refused or receipt.accepted != len(bodies):
        return False
    known = read_positions(positions)
    if len(known) == len(bodies):
        return any(content_digest_header(body) == receipt.digest for body in _forms(known, bodies))
    first, last = covered.after + 1, covered.upto - len(bodies) + 1
    tried = dict.fromkeys((first, last) if first <= last else ())
    placed = (range(start, start + len(bodies)) for start in tried)
    return any(content_digest_header(body) == receipt.digest for at in placed for body in _forms(at, bodies))


def _forms(positions: Sequence[int], bodies: Sequence[str]) -> Iterator[bytes]:
    """Yield the batch of these events as it may have been sent: as lines, and as runs."""
    yield encode_batch((position, "", body) for position, body in zip(positions, bodies, strict=True))
    runs: list[bytes] = []
    start = 0
    for end in range(1, len(positions) + 1):
        if end == len(positions) or positions[end] != positions[end - 1] + 1:
            events = "".join([f"{body}\n" for body in bodies[start:end]]).encode()
            runs.append(Run(positions[start], end - start, "", events).encode())
            start = end
    yield b"".join(runs)
