"""The question of v2 by which a node gets its own events back, after its database was restored from an older copy.

The peer's answer holds the events as stored, and its receipts of the batches that brought them. A receipt states the
digest of the batch, so events that give this digest again are those that the node sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from federation.batch import encode_batch
from federation.errors import BadAnswer, BadEvent, Malformed
from federation.event import Event, decode_canonical
from federation.peers import MAX_TEXT, Limits
from federation.ranges import Position, Range
from federation.runs import Run
from federation.signing import content_digest_header
from federation.wire import Receipt

MOST_RETURNED: Final = 500
"""Maximum number of ids in one question."""
RETURNED_BYTES: Final = 4 << 20
"""Approximate limit of the bytes of events in one answer, and of the ids of receipts; no larger event is returned."""
MOST_PLACEMENTS: Final = 64
"""Number of positions at which a batch may begin that are tried: its range may hold positions of other topics."""

_RECEIPT: Final = msgspec.json.Decoder(Receipt)


class EventsQuery(Struct, frozen=True, tag_field="ask", tag="events"):
    """Asks for the events with these ids that entered a log first at the asking node, and are of its name."""

    ids: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEXT)], ...], Meta(min_length=1, max_length=MOST_RETURNED)]


class ReturnedEvent(Struct, frozen=True, array_like=True):
    """An event in its canonical form. `index`: of its id in the question; `receipt`: index of its receipt, or None."""

    index: Position
    body: str
    receipt: Position | None = None


class BatchReceipt(Struct, frozen=True):
    """The receipt that the peer gave for a batch, as text, the range of the batch, and the ids of its stored events."""

    receipt: str
    range: str
    ids: tuple[str, ...]


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


def proves(receipt: Receipt, covered: Range, bodies: Sequence[str]) -> bool:
    """Return whether these events give the digest in the receipt again: they are the batch that the node sent.

    The positions of the events in the sender's log are not known, so consecutive ones in the range are tried. A batch
    with gaps between its positions is therefore not recognized, nor one of which the peer knew or refused an event.
    """
    if covered.repair or not bodies or receipt.duplicates or receipt.refused or receipt.accepted != len(bodies):
        return False
    last = covered.upto - len(bodies) + 1
    starts = range(covered.after + 1, last + 1)
    tried = [*starts[: MOST_PLACEMENTS // 2], *starts[MOST_PLACEMENTS // 2 :][-MOST_PLACEMENTS // 2 :]]
    return any(content_digest_header(body) == receipt.digest for start in tried for body in _forms(start, bodies))


def _forms(start: int, bodies: Sequence[str]) -> Iterator[bytes]:
    """Yield the batch of these events at consecutive positions as it may have been sent: as lines, and as a run."""
    yield encode_batch((position, "", body) for position, body in enumerate(bodies, start))
    yield Run(start, len(bodies), "", "".join([f"{body}\n" for body in bodies]).encode()).encode()
