"""Asks a peer to prove that sizes of its tree fit together that different nodes have seen."""

from __future__ import annotations

from typing import Final

from eventd.log.witnesses.cosignatures import REFUSED
from eventd.log.witnesses.findings import (
    FindingKind,
    HistoryFinding,
    expire_pending,
    has_expired,
    read_pending,
    settle_pending,
)
from eventd.resources.group_configuration import PeerConfig
from eventd.runtime.clock import SECOND
from eventd.witnessing.asking import HistoryAsker, HistoryUntold
from eventd.witnessing.group_witness import GroupWitness
from federation.errors import HistoryError, ProofMismatch
from federation.history.checkpoints import read_checkpoint
from federation.history.exchange import ConsistencyAnswer, ConsistencyQuestion, read_hashes
from federation.history.notes import read_note
from federation.history.proofs import verify_consistency

PENDING_SECONDS: Final = 10.0
"""The shortest time between two questions to a peer for proofs of its own tree."""
PROOF_HOURS: Final = 24
"""How long a node may take to prove that two sizes of its tree fit together."""


class ProofAsking:
    """Asks one peer for proofs."""

    def __init__(self, witness: GroupWitness, peer: PeerConfig, asker: HistoryAsker) -> None:
        self._witness = witness
        self._peer = peer
        self._asker = asker
        self._asked_at = 0.0

    async def ask(self) -> None:
        """Ask the peer to prove that sizes of its tree that different nodes have seen fit together.

        Of the trees of undeclared nodes, each peer that may relay them is asked.
        """
        ours, clock = self._witness, self._witness.log.clock
        if clock.monotonic() - self._asked_at < PENDING_SECONDS:
            return
        self._asked_at = clock.monotonic()
        before = clock.now() - PROOF_HOURS * 3600 * SECOND
        if await ours.log.database.read(has_expired, ours.topic_id, before):
            expired = await ours.log.database.write(expire_pending, ours.topic_id, before)
            ours.report([FindingKind.UNPROVEN] * expired, self._peer.node_name)
        node, declared = self._peer.node_name, ours.config().peer_nodes()
        for pending in await ours.log.database.read(read_pending, ours.topic_id, node, declared):
            try:
                await self.settle(pending)
            except (HistoryUntold, HistoryError):  # it stays pending, and offers must not wait for it
                return

    async def settle(self, pending: HistoryFinding) -> None:
        """Ask for one proof, and settle the finding by it. Raises `HistoryUntold` and `HistoryError`."""
        ours, node = self._witness, self._peer.node_name
        stated = [read_checkpoint(read_note(note.encode()).text) for note in (pending.note, pending.other_note)]
        small, large = sorted(stated, key=lambda one: one.size)
        question = ConsistencyQuestion(tree=pending.origin, old=small.size, size=large.size)
        try:
            answer, _ = await self._asker.ask(ours.config(), self._peer, question, ConsistencyAnswer)
        except HistoryUntold as untold:
            if untold.reason != REFUSED:
                raise
            return  # as where tiles are pruned: without a proof the finding expires, and offers do not wait for it
        proof = read_hashes(answer.proof, "the consistency proof")
        kind, detail = None, ""
        try:
            verify_consistency(small.size, small.root, large.size, large.root, proof)
        except ProofMismatch as error:
            if pending.node != node:
                return  # a relay can send a wrong proof of a right tree
            kind, detail = FindingKind.FORK, f"{pending.detail}; asked for a proof, {node} sent a wrong one: {error}"
        await ours.log.database.write(settle_pending, pending.id, kind, detail)
        ours.report([kind] if kind else [], node)
