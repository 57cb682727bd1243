"""Notes of other nodes' trees that a relay passes on: of which trees it is asked for a proof, and what it proves.

A relay teaches no key. So it can only bring further trees of a node whose key is declared here: a checkpoint that the
declared key has signed, or its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from eventd.log.history.closed_trees import find_closed
from eventd.log.history.trees import MINUTE
from eventd.log.witnesses.decisions import Decision, decide
from eventd.log.witnesses.keys import LOG, Pins, known_key, show_key
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.store.engine.database import Connection
from federation.errors import HistoryError, MessageError, UnprovenNote
from federation.history.checkpoints import open_checkpoint, read_checkpoint
from federation.history.entries import OpeningReason, read_opening_entry
from federation.history.notes import LOG_KEY, NoteKey, read_note
from federation.history.witnessing import KeySource, follow_rotations, read_rotations

OFFERED: Final = MINUTE
"""For so long after its last offer, a declared peer is expected to offer its trees itself."""


class RelayedNotes(NamedTuple):
    """Notes that `teller` passes on in a group in which this node has the name `node`.

    `peers` are the node names of declared peers, `pins` the declared keys.
    """

    topic_id: int
    group: str
    node: str
    teller: str
    notes: Sequence[str]
    pins: Pins
    peers: Collection[str]


def find_unheld(conn: Connection, heard: RelayedNotes, now: int) -> dict[str, str]:
    """Return the notes that show more of a tree than is held, with its origin, if the key of its node is declared.

    The note of an unknown tree is not verified: the answer of its teller proves itself.
    """
    found: dict[str, str] = {}
    for text in heard.notes:
        try:
            note = read_note(text.encode(errors="replace"))
            stated = read_checkpoint(note.text)
            node = stated.origin.node
            if stated.origin.group != heard.group or node in (heard.node, heard.teller):
                continue
            if (node, LOG) not in heard.pins:
                continue
            tree = find_witnessed(conn, heard.topic_id, str(stated.origin))
            if tree is None and find_closed(conn, heard.topic_id, str(stated.origin)) is not None:
                continue
            if tree is not None:
                recent = now - tree.witnessed_at < OFFERED
                if stated.size <= tree.size or (node in heard.peers and recent):
                    continue
                open_checkpoint(note, tree.key)
            found[text] = str(stated.origin)
        except HistoryError:
            continue  # it proves nothing, also not about its teller, which may have it from another node
    return found


def decide_relayed(conn: Connection, offered: OfferFrom, now: int) -> Decision:
    """Decide on a checkpoint that a relay has sent, as if its node had offered it, and store what is held from then on.

    It must be signed with the declared key of the node. Else a relay could make a tree in its name, whose key would be
    refused as that of the node.
    """
    try:
        _require_declared(conn, offered)
    except MessageError as error:
        return Decision(None, error)
    return decide(conn, offered._replace(relayed=True), now)


def _require_declared(conn: Connection, offered: OfferFrom) -> None:
    """Raise UnprovenNote unless the declared key of a node, or its successor, signed an offered tree."""
    stated = read_checkpoint(offered.offer.note.text)
    known = known_key(conn, offered.topic_id, offered.node, LOG, offered.pins)
    if known is None or known.source is not KeySource.PINNED:
        raise UnprovenNote(f"the key of {offered.node} is not declared, and a relay teaches none", reason="unknown_key")
    if find_witnessed(conn, offered.topic_id, str(stated.origin)) is not None or not offered.offer.opening:
        return
    entry = read_opening_entry(offered.offer.opening)
    known = follow_rotations(read_rotations(offered.offer, stated.origin), known) or known
    before = entry.opening.previous
    if entry.opening.key.public == known.public:
        return
    succeeds = entry.opening.reason is OpeningReason.KEY and before is not None
    if before is None or not succeeds or not entry.is_signed_by(NoteKey(str(before.origin), LOG_KEY, known.public)):
        is_pin = offered.pins.get((offered.node, LOG)) == known.public
        raise UnprovenNote(
            f"{stated.origin} is opened with the key {show_key(LOG, entry.opening.key.public)}, but"
            f" {show_key(LOG, known.public)} of {offered.node} is"
            f" {'declared' if is_pin else 'known, by a rotation of the declared key'}",
            reason="unknown_key",
        )
