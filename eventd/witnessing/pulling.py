"""Pulls the tiles of a peer's trees, if this node passes its events on to others."""

from __future__ import annotations

import logging
from typing import Final

from eventd.log.history.relayed import RelayedCheckpoint, ask_tiles, check_tiles, keep_tiles
from eventd.log.history.trees import Tree, find_tree_of
from eventd.log.witnesses.witnessed import read_of
from eventd.resources.configuration import PeerConfig
from eventd.store.engine.database import Connection
from eventd.witnessing.asking import INVALID, REFUSED, HistoryAsker, HistoryUntold
from eventd.witnessing.group_witness import GroupWitness
from federation.errors import HistoryError
from federation.history.exchange import TilesAnswer

logger = logging.getLogger("eventd.history")

AGAIN_SECONDS: Final = 60.0
"""The pause after a peer that does not send the tiles, or wrong ones: its offers do not wait for them."""


class TilePulling:
    """Pulls what was witnessed of one peer's trees, one answer at a time."""

    def __init__(self, witness: GroupWitness, peer: PeerConfig, asker: HistoryAsker) -> None:
        self._witness = witness
        self._peer = peer
        self._asker = asker
        self._not_before = 0.0
        self._refused = ""

    async def pull(self) -> bool:
        """Pull the next tiles, and store them if they are right; return whether more are due.

        Raises `HistoryUntold` if the peer does not answer at present.
        """
        ours, node, clock = self._witness, self._peer.node_name, self._witness.log.clock
        if not ours.relays(node) or clock.monotonic() < self._not_before:
            return False
        due = await ours.log.database.read(read_due_tiles, ours.topic_id, node)
        if due is None:
            return False
        checkpoint, tree = due
        question = ask_tiles(checkpoint, tree)
        try:
            answer, _ = await self._asker.ask(ours.config(), self._peer, question, TilesAnswer)
            checked = await ours.log.database.read(check_tiles, checkpoint, tree, question, answer)
        except HistoryUntold as untold:
            if untold.reason not in (REFUSED, INVALID):
                raise
            self._give_up(checkpoint, str(untold))
            return False
        except HistoryError as error:
            self._give_up(checkpoint, error.message)
            return False
        self._refused = ""
        ours.metrics.history_pulled(ours.config().name, node, "stored")
        kept = await ours.log.database.write(keep_tiles, ours.topic_id, checked, clock.now())
        return kept and await ours.log.database.read(read_due_tiles, ours.topic_id, node) is not None

    def _give_up(self, checkpoint: RelayedCheckpoint, error: str) -> None:
        ours, group, node = self._witness, self._witness.config().name, self._peer.node_name
        self._not_before = ours.log.clock.monotonic() + AGAIN_SECONDS
        ours.metrics.history_pulled(group, node, "refused")
        if error != self._refused:  # once, and not each minute
            self._refused = error
            about = {"group": group, "peer": node, "origin": checkpoint.origin, "error": error}
            logger.error("history tiles refused", extra=about)


def read_due_tiles(conn: Connection, topic_id: int, node: str) -> tuple[RelayedCheckpoint, Tree | None] | None:
    """Return a witnessed checkpoint of a node's tree of which tiles are missing, with what is kept of the tree.

    Of several trees, the one that was opened last comes first. None if no tile is missing.
    """
    for held in read_of(conn, topic_id, node):
        tree = find_tree_of(conn, topic_id, held.origin)
        if (0 if tree is None else tree.size) < held.size:
            return RelayedCheckpoint(held.origin, held.log_key, held.size, held.root, held.note, held.opened_at), tree
    return None
