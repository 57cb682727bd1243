"""Asks a peer for checkpoints of other nodes' trees that it relays, and witnesses what it proves."""

from __future__ import annotations

import logging
from typing import Final

from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.relayed_notes import decide_relayed
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.resources.group_configuration import PeerConfig
from eventd.witnessing.asking import INVALID, REFUSED, HistoryAsker, HistoryUntold
from eventd.witnessing.group_witness import GroupWitness, WantedTree
from federation.errors import MalformedHistory, MessageError
from federation.history.checkpoints import read_checkpoint, read_origin
from federation.history.exchange import NoteAnswer, NoteQuestion, read_offer
from federation.history.notes import read_note
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

        Notes that led to the question, of which the peer has not proven as much, are compared as those of any node are.
        Raises `HistoryUntold` if the peer does not answer at present.
        """
        wanted = self._witness.wanted.take(self._peer.node_name)
        if wanted is None or read_origin(wanted.origin).node == self._peer.node_name:
            return None if wanted is None else wanted.origin  # the peer offers its own trees
        try:
            proven = await self._ask(wanted.origin)
        except (HistoryUntold, MessageError) as error:
            await self._compare(wanted, 0)
            if isinstance(error, MessageError):
                self._note_refusal(wanted.origin, error.message)
            elif error.reason not in (REFUSED, INVALID):  # else its program is an older one
                raise
            return None
        await self._compare(wanted, proven)
        return wanted.origin if proven else None

    async def _compare(self, wanted: WantedTree, proven: int) -> None:
        """Compare the notes that show more than the size that the peer has proven, or as much.

        One after the other: so two roots of one size are found, also where the first one waits for a proof.
        """
        for note in wanted.notes:
            if read_checkpoint(read_note(note.encode(errors="replace")).text).size >= proven:
                await self._witness.compare([note], self._peer.node_name)

    async def _ask(self, origin: str) -> int:
        """Ask about a tree; return the size that the peer has proven. Raises `MessageError` for a wrong answer."""
        ours, config = self._witness, self._witness.config()
        held = await ours.log.database.read(find_witnessed, ours.topic_id, origin)
        old = 0 if held is None else held.size
        answer, _ = await self._asker.ask(config, self._peer, NoteQuestion(tree=origin, old=old), NoteAnswer)
        if not answer.note or (held is not None and answer.note == held.note):
            return old if answer.note else 0
        offer, stated = read_offer(answer, old), read_origin(origin)
        if read_checkpoint(offer.note.text).origin != stated:
            raise MalformedHistory(f"the answer is about {read_checkpoint(offer.note.text).origin}", reason="origin")
        peers = config.peer_nodes() | {stated.node}
        offered = OfferFrom(ours.topic_id, config.name, stated.node, KeySource.SHARED, ours.pins(), peers, offer)
        decision = await ours.log.database.write(decide_relayed, offered, ours.log.clock.now())
        ours.report(decision.findings, self._peer.node_name)
        if decision.error is not None:
            raise decision.error
        return 0 if decision.checkpoint is None else decision.checkpoint.size

    def _note_refusal(self, origin: str, error: str) -> None:
        """Log why an answer was refused, once for each reason."""
        if self._refused.get(origin) == error:
            return
        if len(self._refused) >= MOST_LOGGED:
            del self._refused[next(iter(self._refused))]
        self._refused[origin] = error
        about = {"group": self._witness.config().name, "peer": self._peer.node_name, "origin": origin}
        logger.error("history note refused", extra=about | {"error": error})
