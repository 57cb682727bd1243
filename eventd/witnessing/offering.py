"""Offers the checkpoints of a group to its peers, one task for each peer, and keeps their cosignatures.

A peer is asked at most once a second, and only when the tree has grown. At first both tell each other what they hold of
the other's trees, which shows a database that is an older copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from eventd.egress.cursors import link_name
from eventd.log.cursors.cursors import read_cursors
from eventd.log.witnesses.cosignatures import (
    REFUSED,
    STALE,
    DueOffer,
    KeepCosignature,
    find_present_witness,
    forget_witness,
    note_witness_state,
    read_due_offer,
)
from eventd.log.witnesses.keys import WITNESS, learn_key, note_refused_key
from eventd.log.witnesses.own_notes import OwnNote
from eventd.log.witnesses.witnessed import read_news
from eventd.resources.group_configuration import PeerConfig
from eventd.runtime.clock import SECOND
from eventd.runtime.supervisor import KeepTask
from eventd.witnessing.asking import BUSY, INVALID, OLDER, UNREACHABLE, HistoryAsker, HistoryUntold
from eventd.witnessing.file_offers import FileOffering
from eventd.witnessing.group_witness import GroupWitness
from eventd.witnessing.proof_asking import ProofAsking
from eventd.witnessing.pulling import TilePulling
from eventd.witnessing.relayed_trees import RelayedTrees
from federation.errors import HistoryError, KeyChanged
from federation.history.checkpoints import read_origin
from federation.history.cosignatures import cosignature_times
from federation.history.exchange import (
    MOST_NOTES,
    KeysAnswer,
    KeysQuestion,
    WitnessAnswer,
    ask_witness,
    fit_notes,
    read_cosignature,
)
from federation.history.notes import WITNESS_KEY, NoteKey, SignedNote, read_note, read_vkey
from federation.history.witnessing import KeySource, KnownKey, witness_name
from federation.peers import PROTOCOL_V1, STATUS

OFFER_SECONDS: Final = 1.0
"""The shortest time between two questions to a peer."""
LONGEST_SECONDS: Final = 60.0
"""The longest pause after questions that were not answered: it doubles up to this."""
OLDER_SECONDS: Final = 60.0
"""The pause after a peer that keeps no history: it may have been upgraded, or configured to keep one, in the meantime.

One that speaks v1 alone, as its link has found, is asked again when the link has found another protocol.
"""
V1_SECONDS: Final = 3600.0
"""After this time, it is asked all the same: a link that has nothing to send finds nothing out."""
BUSY_SECONDS: Final = 10.0
"""The shortest time until files are offered again to a peer that was busy."""


class Offering:
    """Offers the checkpoints of a group to one peer."""

    def __init__(self, witness: GroupWitness, peer: PeerConfig, asker: HistoryAsker) -> None:
        self._witness = witness
        self._peer = peer
        self._asker = asker
        self._key: NoteKey | None = None  # of the peer as a witness, once both have told what they hold
        self._failures = 0
        self._is_older = False  # it knew no histories when it was asked last
        self._asked_at = 0.0
        self._offers_at = 0.0  # when a checkpoint that was refused may be offered again
        self._told_upto = 0  # the time of the newest note of another tree that the peer has
        self._files_at = 0.0  # when files may be offered again
        self._files = FileOffering(witness, peer, asker)
        self._proofs = ProofAsking(witness, peer, asker)
        self._trees = RelayedTrees(witness, peer, asker)
        self._pulling = TilePulling(witness, peer, asker)
        self._grown: asyncio.Future[None] | None = None

    def grown(self) -> None:
        """Offer the checkpoint that was just signed, unless the peer does not answer at present."""
        if self._grown is not None and not self._grown.done():
            self._grown.set_result(None)

    async def run(self) -> None:
        """Offer what is due, until cancelled."""
        clock = self._witness.log.clock
        while True:
            self._grown = asyncio.get_running_loop().create_future()
            pause = await self._step()
            await clock.sleep(OFFER_SECONDS if pause is None else pause)
            if pause is None:
                timer = clock.timer(LONGEST_SECONDS)
                try:
                    await asyncio.wait({self._grown, timer}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    timer.cancel()

    async def _step(self) -> float | None:
        """Ask the peer what is due; return the seconds until the next question, None: when the tree has grown."""
        now = self._witness.log.clock.monotonic()
        if self._is_older and now - self._asked_at < V1_SECONDS and await self._speaks_v1():
            return OLDER_SECONDS
        self._is_older, self._asked_at = False, now
        try:
            if self._key is None:
                self._key = await self._introduce()
                await self._note_older(is_older=False)
            more = await self._offer_unless_refused(self._key)
            more = await self._offer_files(self._key) or more
            await self._proofs.ask()
            more = await self._ask_about_trees() or more
            more = await self._pulling.pull() or more
        except HistoryUntold as untold:
            if untold.reason == OLDER:
                await self._note_older(is_older=True)
            return self._pause(untold)
        except KeyChanged as error:
            group, peer = self._witness.config().name, self._peer.node_name
            self._witness.report_key(peer, error)
            self._witness.metrics.history_cosigned(group, peer, "key_changed")
            return LONGEST_SECONDS
        except HistoryError as error:
            return self._pause(HistoryUntold(INVALID, detail=error.message))
        until_offer = self._offers_at - now
        if until_offer <= 0:
            self._failures = 0
        return OFFER_SECONDS if more else max(OFFER_SECONDS, until_offer) if until_offer > 0 else None

    def _pause(self, untold: HistoryUntold) -> float:
        config, peer = self._witness.config(), self._peer.node_name
        code = untold.error.code if untold.error is not None and untold.reason not in (BUSY, OLDER) else ""
        result = code if code in STATUS else untold.reason  # a peer could invent codes, and each is a series
        self._witness.metrics.history_cosigned(config.name, peer, result)
        if untold.reason == OLDER:
            self._key, self._is_older = None, True
            self._witness.gate.heard(peer, 0)
            return OLDER_SECONDS
        if untold.reason == UNREACHABLE:
            self._key = None  # it may come back with another database
        self._failures += 1
        return min(LONGEST_SECONDS, float(2 ** min(self._failures, 6)))

    async def _speaks_v1(self) -> bool:
        """Return whether the link has found that the peer speaks v1 alone: then it knows no histories either."""
        if self._peer.protocol != "auto":
            return False
        name = link_name(self._witness.config().name, self._peer.node_name)
        found = await self._witness.log.database.read(read_cursors, name=name)
        return any(cursor.protocol == PROTOCOL_V1 for cursor in found)

    # --- what both hold ---------------------------------------------------------------------------------------

    async def _introduce(self) -> NoteKey:
        """Tell the peer what is held of its trees, and hear what it holds of this node's; return its witness key."""
        ours, node = self._witness, self._peer.node_name
        question = KeysQuestion(notes=await ours.notes_for(node))
        answer, source = await self._asker.ask(ours.config(), self._peer, question, KeysAnswer)
        ours.gate.heard(node, (await ours.take_own(answer.notes, node)).held)
        return await self._learn_key(answer, source)

    async def _learn_key(self, answer: KeysAnswer, source: KeySource) -> NoteKey:
        ours, node = self._witness, self._peer.node_name
        group = ours.config().name
        key = read_vkey(answer.witness_key, WITNESS_KEY)
        if key.name != witness_name(group, node):
            raise HistoryUntold(INVALID, detail=f"{node} shows the witness key of {key.name}")
        now, write, pins = ours.log.clock.now(), ours.log.database.write, ours.pins()
        try:
            await write(learn_key, ours.topic_id, node, WITNESS, KnownKey(key.public, source), pins, now)
        except KeyChanged:
            await write(note_refused_key, ours.topic_id, node, WITNESS, key.public, pins, now)
            raise
        return key

    # --- cosignatures -----------------------------------------------------------------------------------------

    async def _offer_unless_refused(self, key: NoteKey) -> bool:
        """Offer the last checkpoint; return whether there may be more to offer.

        A refusal is not raised, so that tiles and proofs are still asked for, as fast as the peer answers: only the
        next offer waits.
        """
        clock = self._witness.log.clock
        if clock.monotonic() < self._offers_at:
            return False
        try:
            return await self._offer(key)
        except HistoryUntold as untold:
            if untold.reason != REFUSED:
                raise
            self._offers_at = clock.monotonic() + self._pause(untold)
            return False

    async def _offer(self, key: NoteKey) -> bool:
        """Offer the last checkpoint, if the peer has not cosigned it; return whether there may be more to offer."""
        ours, node = self._witness, self._peer.node_name
        due = await ours.log.database.read(read_due_offer, ours.topic_id, node)
        if due is None:
            return False
        if due.offer is None:
            await self._note_state(due, STALE, due.detail)
            ours.metrics.history_cosigned(ours.config().name, node, STALE)
            return False
        now = ours.log.clock.now()
        told = self._told_upto if self._told_upto <= now else 0  # in the future: the clock was ahead
        since = max(told, now - 3600 * SECOND)
        news = await ours.log.database.read(read_news, ours.topic_id, since, node, MOST_NOTES)
        notes = [due.previous] if due.previous else []
        question = ask_witness(due.offer, fit_notes([*notes, *(tree.note for tree in news)]))
        try:
            answer, _ = await self._asker.ask(ours.config(), self._peer, question, WitnessAnswer)
        except HistoryUntold as untold:
            return await self._refused(due, untold)
        self._told_upto = max([self._told_upto, *(tree.witnessed_at for tree in news)])
        await self._keep(due, key, answer)
        await ours.take_others(answer.notes, node)
        return False

    async def _keep(self, due: DueOffer, key: NoteKey, answer: WitnessAnswer) -> None:
        """Verify a cosignature and store it with the checkpoint."""
        ours, node = self._witness, self._peer.node_name
        text = read_note(due.checkpoint.note.encode()).text
        signature = read_cosignature(answer.cosignature, text)
        if key not in cosignature_times(SignedNote(text, (signature,)), [key]):
            self._key = None
            raise HistoryUntold(INVALID, detail=f"{node} has cosigned with another key than its own")
        now, size = ours.log.clock.now(), due.checkpoint.size
        await ours.log.submit(KeepCosignature(due.tree.id, node, size, signature, now))
        ours.metrics.history_cosigned(ours.config().name, node, "cosigned")

    async def _refused(self, due: DueOffer, untold: HistoryUntold) -> bool:
        """Take the note of a witness that holds something else; return whether an offer that fits it may follow."""
        ours, node, error = self._witness, self._peer.node_name, untold.error
        if error is not None and error.code in ("conflict", "forked"):
            verdict = (await ours.take_own([error.note], node)).verdict if error.note else OwnNote.NOTHING
            ours.metrics.history_cosigned(ours.config().name, node, error.code)
            if verdict is OwnNote.FITS:
                return True
            if verdict is OwnNote.OLDER_COPY:
                return False
            if not error.note:  # the peer holds nothing of the tree any more
                await ours.log.database.write(forget_witness, due.tree.id, node)
                return True
        if error is not None and untold.reason not in (BUSY, OLDER):
            # This code is shared by many errors, also by limits of the witness.
            code = "" if error.code == HistoryError.code else f"{error.code}: "
            await self._note_state(due, REFUSED, f"{code}{error.message}")
        raise untold

    async def _offer_files(self, key: NoteKey) -> bool:
        """Offer files; return whether there may be more to offer. A peer that is busy holds up nothing else: earlier
        versions answer so for good, if this node is not declared there."""
        clock = self._witness.log.clock
        if clock.monotonic() < self._files_at:
            return False
        try:
            return await self._files.offer(key)
        except HistoryUntold as untold:
            if untold.reason != BUSY:
                raise
        self._files_at = clock.monotonic() + BUSY_SECONDS
        self._witness.metrics.history_cosigned(self._witness.config().name, self._peer.node_name, BUSY)
        return False

    async def _note_state(self, due: DueOffer, state: str, detail: str) -> None:
        ours, now = self._witness, self._witness.log.clock.now()
        await ours.log.database.write(note_witness_state, due.tree.id, self._peer.node_name, state, detail[:1000], now)

    async def _note_older(self, *, is_older: bool) -> None:
        """Record whether a witness keeps no history at present: what it has cosigned says nothing of that."""
        ours, node = self._witness, self._peer.node_name
        found = await ours.log.database.read(find_present_witness, ours.topic_id, node)
        if found is not None and (found.state == OLDER) is not is_older:
            state = (OLDER, "it keeps no history, or its program is too old for it") if is_older else ("", "")
            await ours.log.database.write(note_witness_state, found.tree, node, *state, ours.log.clock.now())

    async def _ask_about_trees(self) -> bool:
        """Ask about a tree of another node that the peer relays; return whether there are more."""
        origin = await self._trees.ask_next()
        config = self._witness.config()
        if origin is not None and (config.verifies_history or config.relays(read_origin(origin).node)):
            self._pulling.want(origin)
        return self._witness.wanted.are_due(self._peer.node_name)


class _Declared(NamedTuple):
    """A peer, and its key as a witness where that is declared: with another one it is asked again."""

    peer: PeerConfig
    pin: bytes | None


class Offers:
    """The offers of one group to its peers."""

    def __init__(self, witness: GroupWitness, asker: HistoryAsker, keep: KeepTask) -> None:
        self._witness = witness
        self._asker = asker
        self._keep = keep
        self._tasks: dict[str, tuple[_Declared, Offering, asyncio.Task[None]]] = {}
        witness.wanted.wake = self._wake
        witness.files.wake[witness.config().name] = self.grown

    def follow(self, peers: Mapping[str, PeerConfig]) -> None:
        """Offer to these peers, and to no others; those that speak v1 alone know no histories."""
        pins = self._witness.pins()
        wanted = {
            peer.node_name: _Declared(peer, pins.get((peer.node_name, WITNESS)))
            for peer in peers.values()
            if peer.protocol != PROTOCOL_V1
        }
        for name, (declared, _, task) in list(self._tasks.items()):
            if wanted.get(name) != declared:
                task.cancel()
                del self._tasks[name]
        for name, declared in wanted.items():
            if name not in self._tasks:
                offering = Offering(self._witness, declared.peer, self._asker)
                task = self._keep(offering.run, f"offers to {name}")
                self._tasks[name] = (declared, offering, task)
        self._witness.gate.ask(wanted)

    def _wake(self, node: str) -> None:
        """Ask a peer what is due, also if no checkpoint was signed."""
        if node in self._tasks:
            self._tasks[node][1].grown()

    def grown(self) -> None:
        """Offer the checkpoint that was just signed."""
        for _, offering, _ in self._tasks.values():
            offering.grown()

    def stop(self) -> None:
        """End all offers."""
        for _, _, task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._witness.files.wake.pop(self._witness.config().name, None)
