"""Whether the id of an event may be freed: a proof file shows that another event has it by right.

An id belongs to the first event that used it. A member who takes the id of an event of another source keeps that event
out, and leaves a signed leaf. The true event is proven with a key that this node knows without any doubt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.errors import CheckFailed, Conflict, Invalid, NotFound
from eventd.log.core.scan import blocks_at, pick_readable
from eventd.log.core.values import Record
from eventd.log.history.relayed import find_kept_root
from eventd.log.history.trees import find_tree_of
from eventd.log.witnesses.keys import LOG, Pins, known_key
from eventd.log.witnesses.offers import WitnessedTree
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.store.engine.database import Connection
from eventd.store.ids.known import read_ids_of
from federation.digest import digest
from federation.errors import MessageError
from federation.event import Event, content_digest, content_of
from federation.history.checkpoints import Checkpoint, read_checkpoint
from federation.history.notes import LOG_KEY, NoteKey, read_vkey
from federation.history.proof_file import ProvenEvent, check_proof, read_proof_file
from federation.history.witnessing import KeySource

_BEYOND_DOUBT: Final = (KeySource.PINNED, KeySource.OWNED)


class IdHolder(NamedTuple):
    """The record that has an id: its position, and the event; None if retention removed it, or it is lost."""

    position: int
    record: Record | None


class IdRelease(NamedTuple):
    """An id that may be freed: what holds it, and the event that has it by right, as it was proven."""

    holder: IdHolder
    proven: ProvenEvent
    event: Event


def check_release(conn: Connection, topic_id: int, group: str, event_id: str, file: bytes, pins: Pins) -> IdRelease:
    """Return what holds the id of an event if the proof file shows that it belongs to an event of another source.

    Raises Invalid for a file of another event, CheckFailed for one that proves nothing to this node, NotFound if the id
    is not taken, and Conflict if the proven event, or another one of its source, has it.
    """
    try:
        given = read_proof_file(file)
        text, stated = given.event, read_checkpoint(given.leaf.note.text)
        key = _require_key(conn, topic_id, group, stated, pins)
        proven = check_proof(file, [key])
    except MessageError as error:
        raise CheckFailed(f"the file proves nothing: {error.message}") from None
    if proven.event is None or text is None:
        raise Invalid(
            "the file names only the digest of an event, and not its id",
            hint="write it without --no-event: routerctl prove EVENT_ID --out FILE",
        )
    if proven.event.id != event_id:
        raise Invalid(f"the file proves the event {proven.event.id}, and not {event_id}")
    return IdRelease(_require_other(conn, topic_id, group, proven.event, text), proven, proven.event)


def _require_key(conn: Connection, topic_id: int, group: str, stated: Checkpoint, pins: Pins) -> NoteKey:
    """Return the key of a tree, if this node owns the tree, or knows the key of its node beyond doubt.

    Raises CheckFailed. The keys in a file, and those that several nodes could have shown, prove nothing here.
    """
    origin = stated.origin
    if origin.group != group:
        raise CheckFailed(f"the file is of the tree {origin}, and not of one of the group {group}")
    tree = find_tree_of(conn, topic_id, str(origin))
    if tree is not None and tree.epoch:
        return read_vkey(tree.log_key, LOG_KEY)
    known = known_key(conn, topic_id, origin.node, LOG, pins)
    if known is None or known.source not in _BEYOND_DOUBT:
        how = "unknown here" if known is None else "known only from a message that others could have signed"
        raise CheckFailed(
            f"the file proves nothing to this node: the key of the node {origin.node} is {how}",
            hint="pin the key that its operator gives you: history.keys of the EventGroup, or history.logKey of the"
            " EventPeer",
        )
    replaced = find_witnessed(conn, topic_id, str(origin))
    if replaced is not None and replaced.key.public != known.public:
        return _require_replaced(conn, topic_id, replaced, stated, pins)
    return NoteKey(str(origin), LOG_KEY, known.public)


def _require_replaced(conn: Connection, topic_id: int, held: WitnessedTree, stated: Checkpoint, pins: Pins) -> NoteKey:
    """Return the key of a tree that was closed when its node rotated its key, if the pin is still that key.

    Others may have the old key by now: it counts only for what was witnessed of the tree. Raises CheckFailed.
    """
    which = f"the file proves nothing to this node: {held.origin} is signed with an earlier key of {held.node}"
    if pins.get((held.node, LOG)) != held.key.public:
        raise CheckFailed(f"{which}, which is not the pinned one", hint="release the id where that key is pinned")
    root = held.root if stated.size == held.size else None
    if stated.size < held.size:
        root = find_kept_root(conn, topic_id, held.origin, stated.size)
    if root != stated.root:
        raise CheckFailed(
            f"{which}, and the checkpoint of size {stated.size} is not known here",
            hint="write the file from the last one that was witnessed here: routerctl prove EVENT_ID --size"
            f" {held.size}",
        )
    return held.key


def _require_other(conn: Connection, topic_id: int, group: str, event: Event, text: str) -> IdHolder:
    """Return what holds the id of a proven event. Raises NotFound, and Conflict unless it is of another source."""
    known = read_ids_of(conn, topic_id, [event.id]).get(event.id)
    if known is None:
        raise NotFound(
            f"the id {event.id} is free in group {group}: the proven event is stored when its sender sends it again"
        )
    record = _find_record(conn, topic_id, event.id, known.position) if known.gone_at is None else None
    same = content_of(record.body) == content_of(text) if record else content_digest(text) == known.digest
    if same or (record is not None and record.node == event.source_node):
        which = (
            "the proven event itself" if same else f"another event of {event.source_node or 'no source'}, its source"
        )
        raise Conflict(f"the id {event.id} is that of {which} in group {group}: nothing was released")
    return IdHolder(known.position, record)


def _find_record(conn: Connection, topic_id: int, event_id: str, position: int) -> Record | None:
    found = (pick_readable(block, places) for block, places in blocks_at(conn, [position]))
    records = (record for some in found for record in some)
    return next((one for one in records if (one.topic_id, one.event_id) == (topic_id, event_id)), None)


def holder_digest(holder: IdHolder) -> bytes | None:
    """Return the digest of the event that holds an id, as its leaf has it; None if the event is not stored."""
    return None if holder.record is None else digest(holder.record.body.encode())
