"""Pulls tiles: of a peer's trees, if this node passes its events on, and of those against which events are checked."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from eventd.log.history.relayed import (
    RelayedCheckpoint,
    ask_connection,
    ask_tiles,
    check_kept,
    check_tiles,
    drop_unproven,
    is_refuted,
    is_refuted_by_proof,
    keep_tiles,
    mark_proven,
)
from eventd.log.history.trees import UNPROVEN, Tree, find_tree_of
from eventd.log.witnesses.witnessed import find_witnessed, read_of
from eventd.resources.group_configuration import PeerConfig
from eventd.store.engine.database import Connection
from eventd.witnessing.asking import INVALID, REFUSED, HistoryAsker, HistoryUntold
from eventd.witnessing.group_witness import GroupWitness
from federation.errors import HistoryError, ProofMismatch
from federation.history.exchange import ConsistencyAnswer, TilesAnswer, TilesQuestion

logger = logging.getLogger("eventd.history")

DueTiles = tuple[RelayedCheckpoint, Tree | None]
"""A witnessed checkpoint, with what is kept of its tree."""
AGAIN_SECONDS: Final = 60.0
"""The pause after a peer that does not send the tiles, or wrong ones: its offers do not wait for them."""


class TilePulling:
    """Pulls from one peer what was witnessed of its trees, and of trees that it relays, one answer at a time."""

    def __init__(self, witness: GroupWitness, peer: PeerConfig, asker: HistoryAsker) -> None:
        self._witness = witness
        self._peer = peer
        self._asker = asker
        self._not_before: dict[str, float] = {}
        self._refused = ""
        self._wanted: dict[str, None] = {}

    def want(self, origin: str) -> None:
        """Pull the tiles of a tree up to what was witnessed of it, also if this node passes nothing on."""
        self._wanted[origin] = None

    async def pull(self) -> bool:
        """Pull the next tiles, and store them if they are right; return whether more are due.

        Raises `HistoryUntold` if the peer does not answer at present.
        """
        ours, node, clock = self._witness, self._peer.node_name, self._witness.log.clock
        if not self._wanted and not ours.relays(node):
            return False
        self._not_before = {tree: time for tree, time in self._not_before.items() if time > clock.monotonic()}
        due = await self._read_due()
        if due is None:
            self._wanted.clear()
            return False
        checkpoint, tree = due
        if tree is not None and checkpoint.size <= tree.size:
            return await self._prove_kept(checkpoint, tree)
        question = ask_tiles(checkpoint, tree)
        try:
            answer, _ = await self._asker.ask(ours.config(), self._peer, question, TilesAnswer)
            checked = await ours.log.database.read(check_tiles, checkpoint, tree, question, answer)
        except HistoryUntold as untold:
            if untold.reason not in (REFUSED, INVALID):
                raise
            self._give_up(checkpoint, str(untold), is_wrong=untold.is_fault)
            return False
        except HistoryError as error:
            unproven = tree if tree is not None and tree.trouble == UNPROVEN else None
            is_other = isinstance(error, ProofMismatch)
            if is_other and unproven and await self._is_refuted(checkpoint, unproven, question, answer):
                return await ours.log.database.write(drop_unproven, unproven.id)  # all of it is pulled
            self._give_up(checkpoint, error.message, is_wrong=unproven is None)  # else what is kept may be wrong
            return False
        self._refused = ""
        ours.metrics.history_pulled(ours.config().name, node, "stored")
        kept = await ours.log.database.write(keep_tiles, ours.topic_id, checked, clock.now())
        return kept and await self._read_due() is not None

    async def _is_refuted(
        self, checkpoint: RelayedCheckpoint, tree: Tree, question: TilesQuestion, answer: TilesAnswer
    ) -> bool:
        """Return whether the peer proves that what is kept is of another tree than the one that is witnessed.

        Wrong tiles alone prove nothing: true ones, which the node itself may have pruned, must not be dropped for them.
        """
        read = self._witness.log.database.read
        if await read(is_refuted, checkpoint, tree, question, answer):
            return True
        proven = ask_connection(checkpoint, tree)
        try:
            proof, _ = await self._asker.ask(self._witness.config(), self._peer, proven, ConsistencyAnswer)
            return await read(is_refuted_by_proof, checkpoint, tree, proven, proof)
        except HistoryUntold as untold:
            if untold.reason not in (REFUSED, INVALID):
                raise
        except HistoryError:
            pass
        return False

    async def _prove_kept(self, checkpoint: RelayedCheckpoint, tree: Tree) -> bool:
        """Find out whether what is kept of a tree contains the smaller checkpoint that was witnessed after a reset."""
        ours = self._witness
        read, question = ours.log.database.read, ask_connection(checkpoint, tree)
        try:
            is_kept = await read(check_kept, checkpoint, tree, question, None)
        except ProofMismatch:  # what is kept shows by itself that it is of another tree
            return await ours.log.database.write(drop_unproven, tree.id)
        try:
            if not is_kept:
                answer, _ = await self._asker.ask(ours.config(), self._peer, question, ConsistencyAnswer)
                await read(check_kept, checkpoint, tree, question, answer)
        except HistoryUntold as untold:
            if untold.reason not in (REFUSED, INVALID):
                raise
            self._give_up(checkpoint, str(untold), is_wrong=untold.is_fault)
            return False
        except HistoryError as error:  # a proof that does not fit: it may be wrong, or what is kept
            self._give_up(checkpoint, error.message, is_wrong=not isinstance(error, ProofMismatch))
            return False
        await ours.log.database.write(mark_proven, tree)
        return await self._read_due() is not None

    async def _read_due(self) -> DueTiles | None:
        ours, node = self._witness, self._peer.node_name
        of = node if ours.relays(node) else ""
        read = ours.log.database.read
        return await read(read_due_tiles, ours.topic_id, of, [*self._wanted], [*self._not_before])

    def _give_up(self, checkpoint: RelayedCheckpoint, error: str, *, is_wrong: bool) -> None:
        """Ask again later. A peer that refuses may have fewer leaves than it signed, as after a restore."""
        ours, group, node = self._witness, self._witness.config().name, self._peer.node_name
        self._not_before[checkpoint.origin] = ours.log.clock.monotonic() + AGAIN_SECONDS
        ours.metrics.history_pulled(group, node, "refused")
        if error == self._refused:  # once, and not each minute
            return
        self._refused = error
        about = {"group": group, "peer": node, "origin": checkpoint.origin, "size": checkpoint.size, "error": error}
        if is_wrong:
            logger.error("history tiles refused", extra=about)
        else:
            logger.warning("history tiles not sent", extra=about)


def read_due_tiles(
    conn: Connection, topic_id: int, node: str, wanted: Sequence[str], paused: Collection[str]
) -> DueTiles | None:
    """Return a witnessed checkpoint of which tiles are missing, or of whose tree what is kept is not proven.

    It is of a tree of the node, or of one of the trees `wanted`. Of a node's trees, the one that was opened last comes
    first. None if nothing is missing, except of `paused` trees.
    """
    trees = [*read_of(conn, topic_id, node), *(find_witnessed(conn, topic_id, origin) for origin in wanted)]
    for held in trees:
        if held is None or held.origin in paused:
            continue
        tree = find_tree_of(conn, topic_id, held.origin)
        if tree is None or tree.size < held.size or tree.trouble == UNPROVEN:
            return RelayedCheckpoint(held.origin, held.log_key, held.size, held.root, held.note, held.opened_at), tree
    return None
