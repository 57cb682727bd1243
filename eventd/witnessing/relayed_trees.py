"""Asks a peer for checkpoints of other nodes' trees that it relays, and witnesses what it proves."""

from __future__ import annotations

import logging
from typing import Final

from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.relayed_notes import decide_relayed
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.resources.configuration import PeerConfig
from eventd.witnessing.asking import INVALID, REFUSED, HistoryAsker, HistoryUntold
from eventd.witnessing.group_witness import GroupWitness
from federation.errors import MalformedHistory, MessageError
from federation.history.checkpoints import read_checkpoint, read_origin
from federation.history.exchange import NoteAnswer, NoteQuestion, read_offer
from federation.history.witnessing import KeySource

logger = logging.getLogger("eventd.history")

MOST_LOGGED: Final = 64
"""How many trees are remembered as refused, so that each is logged once."""


class RelayedTrees:
    """Asks one peer about the trees of other nodes that are wanted of it."""

    def __init__(self, witness: GroupWitness, peer: PeerConfig, asker: HistoryAsker) -> None:
        self._witness = witness
        self._peer = peer
        self._asker = asker
        self._refused: dict[str, str] = {}

    async def ask_next(self) -> str | None:
        """Ask about the next tree, and witness it; return its origin, None if the peer has proven nothing.

        Raises `HistoryUntold` if the peer does not answer at present.
        """
        origin = self._witness.wanted.take(self._peer.node_name)
        if origin is None or read_origin(origin).node == self._peer.node_name:
            return origin  # the peer offers its own trees
        try:
            return origin if await self._ask(origin) else None
        except HistoryUntold as untold:
            if untold.reason not in (REFUSED, INVALID):
                raise
            return None  # its program is an older one
        except MessageError as error:
            self._note_refusal(origin, error.message)
            return None

    async def _ask(self, origin: str) -> bool:
        """Ask about a tree; return whether the peer has proven it. Raises `MessageError` for a wrong answer."""
        ours, config = self._witness, self._witness.config()
        held = await ours.log.database.read(find_witnessed, ours.topic_id, origin)
        old = 0 if held is None else held.size
        answer, _ = await self._asker.ask(config, self._peer, NoteQuestion(tree=origin, old=old), NoteAnswer)
        if not answer.note or (held is not None and answer.note == held.note):
            return bool(answer.note)
        offer, stated = read_offer(answer, old), read_origin(origin)
        if read_checkpoint(offer.note.text).origin != stated:
            raise MalformedHistory(f"the answer is about {read_checkpoint(offer.note.text).origin}", reason="origin")
        peers = {peer.node_name for peer in config.peers.values()} | {stated.node}
        offered = OfferFrom(ours.topic_id, config.name, stated.node, KeySource.SHARED, ours.pins(), peers, offer)
        decision = await ours.log.database.write(decide_relayed, offered, ours.log.clock.now())
        ours.report(decision.findings, self._peer.node_name)
        if decision.error is not None:
            raise decision.error
        return True

    def _note_refusal(self, origin: str, error: str) -> None:
        """Log why an answer was refused, once for each reason."""
        if self._refused.get(origin) == error:
            return
        if len(self._refused) >= MOST_LOGGED:
            del self._refused[next(iter(self._refused))]
        self._refused[origin] = error
        about = {"group": self._witness.config().name, "peer": self._peer.node_name, "origin": origin}
        logger.error("history note refused", extra=about | {"error": error})
