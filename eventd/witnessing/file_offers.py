"""Offers the checkpoints of the files that this node has written to its lake to one peer, which cosigns them."""

from __future__ import annotations

import logging
from typing import Final

from eventd.log.witnesses.findings import FindingKind, NewFinding, keep_finding
from eventd.resources.group_configuration import PeerConfig
from eventd.witnessing.asking import BUSY, INVALID, OLDER, UNREACHABLE, HistoryAsker, HistoryUntold
from eventd.witnessing.group_witness import GroupWitness
from eventd.witnessing.own_files import FilesWitness, HeldNote
from federation.errors import HistoryError, ProofMismatch
from federation.history.cosignatures import cosignature_times
from federation.history.exchange import WitnessAnswer, ask_witness, read_cosignature
from federation.history.lake_checkpoints import LakeCheckpoint, read_lake_checkpoint
from federation.history.lake_witnessing import open_files
from federation.history.notes import NoteKey, SignedNote, read_note
from federation.history.witnessing import Offer
from federation.peers import STATUS

logger = logging.getLogger("eventd.history")

_PASSING: Final = (BUSY, OLDER, UNREACHABLE)
"""Reasons that say nothing about the offer."""


class FileOffering:
    """Offers the files of this node to one peer of a group."""

    def __init__(self, witness: GroupWitness, peer: PeerConfig, asker: HistoryAsker) -> None:
        self._witness = witness
        self._peer = peer
        self._asker = asker
        self._told = ""
        """Why the peer refused the last checkpoint that it refused."""

    async def offer(self, key: NoteKey) -> bool:
        """Offer what is due to the peer, whose key as a witness this is; return whether there may be more to offer.

        Raises `HistoryUntold` if the peer does not answer at present.
        """
        ours = self._witness
        files, me = ours.files, FilesWitness(ours.config().name, ours.config().node_name, self._peer.node_name)
        try:
            due = files.find_due(me)
        except ProofMismatch as error:
            held = files.find_held(me)
            files.give_up(me)
            if held is not None:
                await self._find_older(me, held, error.message)
            return False
        if due is None:
            return False
        try:
            answer, _ = await self._asker.ask(ours.config(), self._peer, ask_witness(due), WitnessAnswer)
            signature = read_cosignature(answer.cosignature, due.note.text)
            if key not in cosignature_times(SignedNote(due.note.text, (signature,)), [key]):
                raise HistoryUntold(INVALID, detail=f"{me.peer} has cosigned with another key than its own")
        except HistoryUntold as untold:
            if untold.reason in _PASSING:
                raise
            return await self._refused(me, due, untold)
        except HistoryError as error:
            return await self._refused(me, due, HistoryUntold(INVALID, detail=error.message))
        files.keep(me, due, signature)
        ours.metrics.history_cosigned(me.group, me.peer, "cosigned")
        return False

    async def _refused(self, me: FilesWitness, due: Offer, untold: HistoryUntold) -> bool:
        """Take the note of a witness that holds something else; return whether an offer that fits it may follow."""
        files, error = self._witness.files, untold.error
        known = error is not None and error.code in STATUS  # a peer could invent codes, and each is a series
        self._witness.metrics.history_cosigned(me.group, me.peer, error.code if error and known else untold.reason)
        held = await self._open(error.note) if error is not None and error.note else None
        if held is not None and held.origin != read_lake_checkpoint(due.note.text).origin:
            held = None
        if error is not None and error.code == "conflict" and not error.note and files.forget_held(me):
            return True  # the peer holds nothing of the files any more
        if held is not None and error is not None:
            files.note_held(me, held, error.note)
            if not files.has_all_of(me, held):
                files.give_up(me)
                await self._find_older(me, HeldNote(held, error.note), f"the lake has other lines: {error.code}")
                return False
            # The note alone shows nothing else: a refusal is not signed, and an earlier note may be put into it.
            if error.code == "conflict" and held.size != due.old:
                return True
        files.give_up(me)
        if str(untold) != self._told:  # once, and not with each state
            self._told = str(untold)
            logger.warning("lake checkpoint refused", extra={"group": me.group, "peer": me.peer, "error": self._told})
        return False

    async def _find_older(self, me: FilesWitness, held: HeldNote, why: str) -> None:
        """Keep the finding that the lake has other files of this node than a witness has seen."""
        ours, stated = self._witness, held.stated
        detail = (
            f"{me.peer} has cosigned {stated.size} lines of {stated.origin}, which this node signed, and the lake does"
            f" not have all of them: another program has changed them, or put an older copy there ({why})"
        )
        signed = NewFinding(str(stated.origin), me.node, FindingKind.OLDER_COPY, 0, stated.size, "", held.note, detail)
        if await ours.log.database.write(keep_finding, ours.topic_id, signed, ours.log.clock.now()):
            ours.report([signed.kind], me.peer)

    async def _open(self, text: str) -> LakeCheckpoint | None:
        """Return the checkpoint in a note that a key of this node signed."""
        owner = (await self._witness.keys()).owner
        for key in (owner.private, owner.retired):
            try:
                if key is not None:
                    return open_files(read_note(text.encode()), key.public_key().public_bytes_raw())
            except HistoryError:
                continue
        return None
