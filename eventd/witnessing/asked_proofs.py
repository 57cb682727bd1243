"""Asks a peer to prove an event that it sent: two or three questions give a proof file for a third party."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.witnessing.asking import BUSY, HistoryAsker, HistoryUntold
from federation.digest import digest
from federation.errors import HistoryError
from federation.history.bulk_answers import check_entries
from federation.history.checkpoints import open_checkpoint
from federation.history.entries import event_entry
from federation.history.exchange import (
    HistoryQuestion,
    NoteAnswer,
    NoteQuestion,
    ProveAnswer,
    ProveQuestion,
    read_hashes,
    read_offer,
)
from federation.history.forms import write_base64
from federation.history.merkle import hash_leaf
from federation.history.multiproofs import path_of_one
from federation.history.notes import NoteKey, read_note
from federation.history.proof_file import LeafProof, ProofFile, check_proof

TRIES: Final = 5
"""How often a question is asked of a peer that answers another one at the same time."""
PAUSE_SECONDS: Final = 0.5

A = TypeVar("A", NoteAnswer, ProveAnswer)


class TreeToAsk(NamedTuple):
    """A tree that may have the leaf of an event, with its key. `leaf`: where the sender said that it is, or 0."""

    origin: str
    key: NoteKey
    leaf: int


class AskedProofs:
    """Asks one peer of a group for proofs."""

    def __init__(self, asker: HistoryAsker, group: GroupConfig, peer: PeerConfig) -> None:
        self._asker = asker
        self._group = group
        self._peer = peer

    async def prove(self, body: str, trees: Sequence[TreeToAsk], *, with_event: bool = True) -> ProofFile | None:
        """Return the proof file of an event from the first tree that has it; None if the peer proves it in none.

        Raises `HistoryUntold`, and a `HistoryError` for an answer that proves nothing.
        """
        for tree in trees:
            found = await self._prove_in(body, tree, with_event=with_event)
            if found is not None:
                return found
        return None

    async def _prove_in(self, body: str, tree: TreeToAsk, *, with_event: bool) -> ProofFile | None:
        shown = await self._ask(NoteQuestion(tree=tree.origin), NoteAnswer)
        if not shown.note:
            return None
        offer = read_offer(shown, 0)
        size, mark = open_checkpoint(offer.note, tree.key).size, digest(body)
        for question in _questions(tree, size, mark):
            answer = await self._ask(question, ProveAnswer)
            try:
                _, found = check_entries(question, answer, [hash_leaf(event_entry(mark))], tree.key)
            except HistoryError:
                if question.digests:
                    raise
                continue  # the leaf is not where the sender said that it is
            if found:
                path = path_of_one(found[0], size, read_hashes(answer.proof, "the proof"))
                leaf = LeafProof(found[0], path, read_note(answer.note.encode()))
                file = ProofFile(mark, body if with_event else None, leaf, offer.opening, offer.opening_path)
                check_proof(file.encode(), [tree.key])
                return file
        return None

    async def _ask(self, question: HistoryQuestion, kind: type[A]) -> A:
        for _ in range(TRIES - 1):
            try:
                return (await self._asker.ask(self._group, self._peer, question, kind))[0]
            except HistoryUntold as untold:
                if untold.reason != BUSY:
                    raise
            await self._asker.clock.sleep(PAUSE_SECONDS)
        return (await self._asker.ask(self._group, self._peer, question, kind))[0]


def _questions(tree: TreeToAsk, size: int, mark: bytes) -> Iterator[ProveQuestion]:
    """Yield questions about an event: at the leaf that its sender named, and by its digest, which a peer looks for."""
    if 0 < tree.leaf < size:
        yield ProveQuestion(tree=tree.origin, size=size, indices=(tree.leaf,))
    yield ProveQuestion(tree=tree.origin, size=size, digests=(write_base64(mark),))
