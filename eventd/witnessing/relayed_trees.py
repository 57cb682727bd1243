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
from federation.errors import HistoryError, MessageError
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
        """Ask about the next tree, and witness it; return its origin, None if no tree is wanted.

        Raises `HistoryUntold` if the peer does not answer at present.
        """
        origin = self._witness.wanted.take(self._peer.node_name)
        if origin is None:
            return None
        try:
            # The peer offers its own trees.
            error = "" if read_origin(origin).node == self._peer.node_name else await self._ask(origin)
        except HistoryUntold as untold:
            if untold.reason not in (REFUSED, INVALID):
                raise
            return origin  # it keeps no tiles of the tree, or not yet; or its program is an older one
        except HistoryError as refused:
            error = refused.message
        if error and self._refused.get(origin) != error:
            if len(self._refused) >= MOST_LOGGED:
                del self._refused[next(iter(self._refused))]
            self._refused[origin] = error
            about = {"group": self._witness.config().name, "peer": self._peer.node_name, "origin": origin}
            logger.error("history note refused", extra=about | {"error": error})
        return origin

    async def _ask(self, origin: str) -> str:
        """Ask about a tree; return why the answer was refused, empty if it was not."""
        ours, config = self._witness, self._witness.config()
        held = await ours.log.database.read(find_witnessed, ours.topic_id, origin)
        old = 0 if held is None else held.size
        answer, _ = await self._asker.ask(config, self._peer, NoteQuestion(tree=origin, old=old), NoteAnswer)
        if held is not None and answer.note == held.note:
            return ""
        offer, stated = read_offer(answer, old), read_origin(origin)
        if read_checkpoint(offer.note.text).origin != stated:
            return f"the answer is about another tree: {read_checkpoint(offer.note.text).origin}"
        peers = {peer.node_name for peer in config.peers.values()} | {stated.node}
        offered = OfferFrom(ours.topic_id, config.name, stated.node, KeySource.SHARED, ours.pins(), peers, offer)
        decision = await ours.log.database.write(decide_relayed, offered, ours.log.clock.now())
        ours.report(decision.findings, self._peer.node_name)
        error: MessageError | None = decision.error
        return "" if error is None else error.message
