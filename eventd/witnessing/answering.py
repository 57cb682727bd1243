"""Answers peers that ask about histories: cosigns their checkpoints, and shows keys and proofs of this node's trees."""

from __future__ import annotations

import logging
from typing import Final

from eventd.log.history.bulk_proving import answer_prove, answer_range
from eventd.log.history.relayed import answer_tiles
from eventd.log.history.trees import StoredCheckpoint, Tree, find_open_tree, read_checkpoint_of, tile_reader
from eventd.log.witnesses.cosignatures import prove_consistency, prove_last
from eventd.log.witnesses.decisions import DecideOffer
from eventd.log.witnesses.offers import OfferFrom
from eventd.log.witnesses.witnessed import read_news
from eventd.log.witnesses.witnessed_files import DecideFilesOffer
from eventd.runtime.clock import SECOND
from eventd.runtime.log_pause import LogPause
from eventd.store.engine.database import Connection
from eventd.witnessing.asking import source_of
from eventd.witnessing.group_witness import GroupWitness
from federation.errors import LeavesNotHeld, NotWitnessed, TooManyQueries
from federation.history.checkpoints import read_origin
from federation.history.cosignatures import cosign
from federation.history.exchange import (
    MOST_NOTES,
    ConsistencyAnswer,
    ConsistencyQuestion,
    HistoryReply,
    KeysAnswer,
    KeysQuestion,
    NoteAnswer,
    NoteQuestion,
    OpeningProof,
    ProveQuestion,
    RangeQuestion,
    TilesQuestion,
    WitnessAnswer,
    WitnessQuestion,
    answer_note,
    encode_history,
    fit_notes,
    read_history_question,
    read_offer,
    write_hashes,
)
from federation.history.lake_witnessing import is_of_files
from federation.history.tiles import inclusion_proof
from federation.signing import VerifiedRequest

logger = logging.getLogger("eventd.history")

PARALLEL: Final = 8
"""Maximum number of questions of a group that are answered at the same time, each of them of a different node."""
NEWS_SECONDS: Final = 3600
"""The age up to which notes of other trees are passed on."""


class HistoryAnswers:
    """Answers the questions of peers about the histories of one group."""

    def __init__(self, witness: GroupWitness) -> None:
        self._witness = witness
        self._at_work: set[str] = set()
        self._pause = LogPause(witness.log.clock.monotonic)

    async def answer(self, request: VerifiedRequest, body: bytes) -> bytes:
        """Return the encoded answer to a question. Raises `MessageError`."""
        question, node = read_history_question(body), request.header.from_node
        if node in self._at_work or len(self._at_work) >= PARALLEL:
            raise TooManyQueries("other questions are being answered: retry in a moment")
        self._at_work.add(node)
        try:
            if isinstance(question, WitnessQuestion):
                return encode_history(await self._cosign(request, question))
            if isinstance(question, KeysQuestion):
                return encode_history(await self._show_keys(node, question))
            if isinstance(question, ConsistencyQuestion):
                return encode_history(await self._prove(question))
            if isinstance(question, NoteQuestion):
                return encode_history(await self._show_note(question))
            return encode_history(await self._read(question))
        except LeavesNotHeld as error:
            if self._pause.is_over_for(node):
                about = {"group": self._witness.config().name, "peer": node, "error": error.message}
                logger.info("history not held", extra=about)
            raise
        finally:
            self._at_work.discard(node)

    async def _cosign(self, request: VerifiedRequest, question: WitnessQuestion) -> HistoryReply:
        ours, node = self._witness, request.header.from_node
        config, now = ours.config(), ours.log.clock.now()
        offered = OfferFrom(
            topic_id=ours.topic_id,
            group=config.name,
            node=node,
            source=source_of(request.key, node),
            pins=ours.pins(),
            peers=config.peer_nodes(),
            offer=read_offer(question),
        )
        of_files = is_of_files(question.note)
        unit = DecideFilesOffer(offered, now) if of_files else DecideOffer(offered, now)
        decision = await ours.log.submit(unit)
        ours.report(decision.findings, node)
        if decision.newly_refused and decision.error is not None:  # once a minute at most
            ours.report_key(node, decision.error)
        await ours.take_others(question.notes, node)
        if decision.error is not None:
            if decision.error.reason in NotWitnessed.LIMITS:  # no fault, but a flood of them must be seen
                ours.metrics.refused(config.name, decision.error.reason)
            raise decision.error
        signer = (await ours.keys()).witness
        line = cosign(offered.offer.note.text, signer, now // SECOND).line()
        if of_files:
            return WitnessAnswer(cosignature=line)
        since = now - NEWS_SECONDS * SECOND
        news = await ours.log.database.read(read_news, ours.topic_id, since, node, MOST_NOTES)
        return WitnessAnswer(cosignature=line, notes=fit_notes([tree.note for tree in news]))

    async def _show_keys(self, node: str, question: KeysQuestion) -> KeysAnswer:
        ours = self._witness
        if question.notes:
            await ours.take_own(question.notes, node)
        vkey = (await ours.keys()).witness.key.text()
        notes = await ours.notes_for(node)
        shown = await ours.log.database.read(_read_own, ours.topic_id)
        if shown is None:
            return KeysAnswer(witness_key=vkey, notes=notes)
        tree, signed, path = shown
        opening = OpeningProof(tree.opening[1:].decode(), write_hashes(path))
        return KeysAnswer(witness_key=vkey, log_key=tree.log_key, note=signed.note, opening=opening, notes=notes)

    async def _show_note(self, question: NoteQuestion) -> NoteAnswer:
        ours, node = self._witness, read_origin(question.tree).node
        if ours.relays(node):
            ours.wanted.wake(node)  # tiles of what was witnessed meanwhile are pulled now, for the next question
        offer = await ours.log.database.read(prove_last, ours.topic_id, question.tree, question.old)
        return NoteAnswer() if offer is None else answer_note(offer)

    async def _prove(self, question: ConsistencyQuestion) -> ConsistencyAnswer:
        ours = self._witness
        proof = await ours.log.database.read(
            prove_consistency, ours.topic_id, question.tree, question.old, question.size
        )
        return ConsistencyAnswer(write_hashes(tuple(proof)))

    async def _read(self, question: TilesQuestion | RangeQuestion | ProveQuestion) -> HistoryReply:
        """Answer a question about the hashes of a tree that this node keeps."""
        topic_id, read = self._witness.topic_id, self._witness.log.database.read
        if isinstance(question, TilesQuestion):
            return await read(answer_tiles, topic_id, question)
        if isinstance(question, RangeQuestion):
            return await read(answer_range, topic_id, question)
        return await read(answer_prove, topic_id, question)


def _read_own(conn: Connection, topic_id: int) -> tuple[Tree, StoredCheckpoint, tuple[bytes, ...]] | None:
    """Return the open tree with its last checkpoint and the path of its opening entry; None without a checkpoint."""
    tree = find_open_tree(conn, topic_id)
    signed = None if tree is None else read_checkpoint_of(conn, tree.id)
    if tree is None or signed is None:
        return None
    return tree, signed, tuple(inclusion_proof(0, signed.size, tile_reader(conn, tree.id)))
