"""What the answers and the offers of one group share: its keys, notes that arrive, and whether it may sign yet."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import TreeOwner
from eventd.log.witnesses.compared_notes import compare_notes, keep_compared
from eventd.log.witnesses.findings import FindingKind
from eventd.log.witnesses.keys import Pins
from eventd.log.witnesses.own_notes import NoteComparison, OwnNote, Shown, take_own_note
from eventd.log.witnesses.relayed_notes import RelayedNotes, find_unheld
from eventd.log.witnesses.witnessed import read_of
from eventd.resources.group_configuration import GroupConfig
from eventd.witnessing.own_files import OwnFiles
from eventd.witnessing.signing_gate import SigningGate
from federation.errors import MessageError
from federation.history.exchange import MOST_NOTES, fit_notes
from federation.history.notes import NoteSigner

logger = logging.getLogger("eventd.history")

MOST_OF_A_NODE: Final = 4
"""How many notes of the trees of a node are shown to it: those that it opened last."""

MOST_WANTED: Final = 64
"""Maximum number of trees about which a peer is to be asked: as many notes as a message has."""


class WitnessMetrics(Protocol):
    """Interface of the metrics of witnesses."""

    def history_cosigned(self, group: str, peer: str, result: str) -> None: ...

    def history_pulled(self, group: str, peer: str, result: str) -> None: ...

    def refused(self, group: str, reason: str) -> None: ...

    def history_found(self, group: str, kind: str) -> None: ...


class GroupKeys(NamedTuple):
    """The keys with which this node signs in a group: as the owner of trees, and as a witness."""

    owner: TreeOwner
    witness: NoteSigner


class WantedTree(NamedTuple):
    """A tree about which a peer is to be asked, and the notes of it that the peer has shown: not compared yet."""

    origin: str
    notes: tuple[str, ...]


class WantedTrees:
    """Trees of which peers are to be asked what they can prove, by the node name of the peer.

    `wake` is called with a peer that is to be asked, also for tiles.
    """

    def __init__(self) -> None:
        self._by_peer: dict[str, dict[str, dict[str, None]]] = {}
        self.wake: Callable[[str], None] = lambda _: None

    def want(self, peer: str, origin: str, note: str = "") -> bool:
        """Have a peer asked about a tree, because of a note of it that the peer has shown; return whether it will be.

        It will not if it is to be asked about many trees already, or about many notes of this one.
        """
        due = self._by_peer.setdefault(peer, {})
        if origin not in due:
            if len(due) >= MOST_WANTED:
                return False
            due[origin] = {}
            self.wake(peer)
        if note and note not in due[origin]:
            if len(due[origin]) >= MOST_NOTES:
                return False
            due[origin][note] = None
        return True

    def take(self, peer: str) -> WantedTree | None:
        """Return the next tree about which a peer is to be asked; None if there is none."""
        due = self._by_peer.get(peer)
        if not due:
            return None
        origin = next(iter(due))
        return WantedTree(origin, tuple(due.pop(origin)))

    def are_due(self, peer: str) -> bool:
        """Return whether a peer is to be asked about any tree."""
        return bool(self._by_peer.get(peer))


@dataclass(frozen=True, slots=True)
class GroupWitness:
    """One group of this node as a witness and as the owner of trees.

    `config` returns the group as declared, `keys` this node's keys, which are read from their file at first.
    """

    config: Callable[[], GroupConfig]
    topic_id: int
    log: EventLog
    keys: Callable[[], Awaitable[GroupKeys]]
    metrics: WitnessMetrics
    gate: SigningGate
    wanted: WantedTrees = field(default_factory=WantedTrees)
    files: OwnFiles = field(default_factory=OwnFiles)

    def is_declared(self, node: str) -> bool:
        """Return whether a node is a declared peer of the group."""
        return any(peer.node_name == node for peer in self.config().peers.values())

    def relays(self, node: str) -> bool:
        """Return whether this node passes on to others what a node admits."""
        return self.config().relays(node)

    def pins(self) -> Pins:
        """Return the declared keys of other nodes."""
        return self.config().history_pins

    async def notes_for(self, node: str) -> tuple[str, ...]:
        """Return the last notes that are held of the trees of a node."""
        held = await self.log.database.read(read_of, self.topic_id, node)
        return fit_notes([tree.note for tree in held[:MOST_OF_A_NODE]])

    async def take_own(self, notes: Sequence[str], peer: str) -> NoteComparison:
        """Compare notes of this node's own trees, which a peer has shown, with the database.

        If one shows that the database is an older copy, the log gets a new epoch.
        """
        verdict, held = OwnNote.NOTHING, 0
        owner = (await self.keys()).owner
        for note in notes[:MOST_OF_A_NODE]:
            shown = Shown(self.topic_id, owner, peer, note, self.is_declared(peer))
            found = await self.log.database.write(take_own_note, shown, self.log.clock.now())
            verdict = found.verdict if verdict is not OwnNote.OLDER_COPY else verdict
            held = max(held, found.held)
            if found.renewed:
                about = {"group": owner.group, "peer": peer}
                logger.error("history is an older copy", extra=about)
                self.metrics.history_found(owner.group, FindingKind.OLDER_COPY)
                await self.log.look_around()
                self.gate.open()  # the tree is not continued
        return NoteComparison(verdict, held=held)

    async def take_others(self, notes: Sequence[str], teller: str) -> None:
        """Compare notes of other nodes' trees, which a peer passes on, with what is held of them."""
        if not notes:
            return
        config, asked = self.config(), set[str]()
        if self.is_declared(teller):
            peers = [peer.node_name for peer in config.peers.values()]
            heard = RelayedNotes(self.topic_id, config.name, config.node_name, teller, notes, self.pins(), peers)
            unheld = await self.log.database.read(find_unheld, heard, self.log.clock.now())
            asked = {note for note, origin in unheld.items() if self.wanted.want(teller, origin, note)}
        await self.compare([note for note in notes if note not in asked], teller)

    async def compare(self, notes: Sequence[str], teller: str) -> None:
        """Compare notes of other nodes' trees with what is held of them, and keep what does not fit."""
        database, now = self.log.database, self.log.clock.now()
        found = await database.read(compare_notes, self.topic_id, self.config().name, notes, teller) if notes else []
        if found:
            self.report(await database.write(keep_compared, self.topic_id, found, now), teller)

    def report(self, found: Iterable[FindingKind], peer: str) -> None:
        """Log and count new findings."""
        group = self.config().name
        for kind in found:
            logger.error("history finding", extra={"group": group, "kind": kind.value, "peer": peer})
            self.metrics.history_found(group, kind.value)

    def report_key(self, peer: str, error: MessageError) -> None:
        """Log that a peer shows another key than the known one."""
        about = {"group": self.config().name, "peer": peer, "error": error.message}
        logger.error("history key changed", extra=about)
