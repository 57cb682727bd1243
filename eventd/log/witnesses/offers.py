"""What is offered to a witness, and what it holds of a tree."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from eventd.log.witnesses.keys import Pins
from federation.history.checkpoints import Checkpoint, read_origin
from federation.history.notes import LOG_KEY, NoteKey, read_vkey
from federation.history.witnessing import HeldCheckpoint, KeySource, Offer

OF_FILES: Final = "substr(origin, 1, 12) = 'eventd-lake/'"
"""The condition for witnessed trees of files that other nodes have written to a lake."""


class WitnessedTree(NamedTuple):
    """What is held of a tree of another node: its last checkpoint that was cosigned here, and its verifier key."""

    origin: str
    node: str
    log_key: str
    size: int
    root: bytes
    note: str
    opened_at: int
    witnessed_at: int

    @property
    def held(self) -> HeldCheckpoint:
        """The checkpoint that is held."""
        return HeldCheckpoint(Checkpoint(read_origin(self.origin), self.size, self.root), self.note)

    @property
    def key(self) -> NoteKey:
        """The verifier key of the tree."""
        return read_vkey(self.log_key, LOG_KEY)


class OfferFrom(NamedTuple):
    """An offered checkpoint and where it comes from: the group, the node, and how strong the node's word is on keys.

    `peers` are the node names of declared peers, whose trees displace those of others; `pins` the declared keys.
    `relayed`: another node has sent it, and it is not cosigned.
    """

    topic_id: int
    group: str
    node: str
    source: KeySource
    pins: Pins
    peers: Collection[str]
    offer: Offer
    relayed: bool = False
