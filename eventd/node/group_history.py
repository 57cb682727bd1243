"""The history of one group while the node serves it: its keys, its sealer, and its witnesses, as declared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from eventd.egress.transport.transport import Transport
from eventd.errors import SettingsError
from eventd.log.core.eventlog import EventLog
from eventd.log.history.open_tree import TreeOwner
from eventd.log.witnesses.cosignatures import read_held_sizes
from eventd.net.address_rules import AddressRules
from eventd.node.sealing import Sealer, SealMetrics
from eventd.node.shipped_trees import ShippedTrees
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.supervisor import Supervisor
from eventd.witnessing.answering import HistoryAnswers
from eventd.witnessing.asking import HistoryAsker
from eventd.witnessing.group_witness import GroupKeys, GroupWitness, WitnessMetrics
from eventd.witnessing.node_keys import LoadedKeys
from eventd.witnessing.offering import Offers
from eventd.witnessing.signing_gate import LAKE, SigningGate
from eventd.witnessing.verifying import Verifying, VerifyMetrics
from federation.history.notes import WITNESS_KEY, NoteSigner
from federation.history.witnessing import witness_name
from federation.keys import KeyRing

logger = logging.getLogger("eventd.history")


class HistoryMetrics(SealMetrics, WitnessMetrics, VerifyMetrics, Protocol):
    """Interface of the metrics of histories."""


@dataclass(frozen=True, slots=True)
class HistoryDependencies:
    """Dependencies shared by the histories of all groups. `rules` judge the addresses of peers."""

    log: EventLog
    transport: Transport
    rules: AddressRules | None
    supervisor: Supervisor
    metrics: HistoryMetrics
    shipped: ShippedTrees


class GroupHistory:
    """Keeps the history of one group as it is declared.

    `config` returns the group as declared now. `answers` answers the questions of peers; None while no history is kept.
    """

    def __init__(
        self,
        config: Callable[[], GroupConfig],
        topic_id: int,
        ring: Callable[[], KeyRing],
        dependencies: HistoryDependencies,
    ) -> None:
        self._config = config
        self._topic_id = topic_id
        self._ring = ring
        self._dependencies = dependencies
        self._declared: tuple[bool, str] | None = None
        self._witness: GroupWitness | None = None
        self._sealer: Sealer | None = None
        self._sealing: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._verifying: asyncio.Task[None] | None = None
        self._offers: Offers | None = None
        self.answers: HistoryAnswers | None = None
        self.is_ending = False
        """Whether the last records are being sealed, before the node stops."""

    async def keep(self, loaded: LoadedKeys) -> None:
        """Keep the history as it is declared now, with the keys of the node.

        On return, the group has its tree: each record from then on gets a leaf.
        """
        config = self._config()
        declared = config.keeps_history, config.node_name
        if declared == self._declared:
            self._keep_checks()
            return
        self.stop()
        self._declared = declared
        ours = self._dependencies
        keys = partial(_group_keys, self._config, loaded)
        known = await ours.log.database.read(read_held_sizes, self._topic_id)  # before a peer shows another size
        gate = SigningGate(known, with_lake=ours.shipped.awaited)
        witness = GroupWitness(
            self._config, self._topic_id, ours.log, keys, ours.metrics, gate, files=ours.shipped.files
        )
        if config.keeps_history:
            self.answers = HistoryAnswers(witness)
            log = ours.log
            asker = HistoryAsker(ours.transport, self._ring, log.clock, log.chance.token, ours.rules)
            self._offers = Offers(witness, asker, ours.supervisor.keep)
            self._witness = witness
            self._keep_checks()
            if ours.shipped.awaited:
                compare = partial(_compare_shipped, witness, ours.shipped)
                self._comparing = ours.supervisor.keep(compare, f"shipped history of {config.name}")
        else:
            gate.open()  # no peer is asked: only the last records of the present tree are sealed
        sealer = self._sealer = Sealer(witness, ours.metrics, self._note_growth)
        with suppress(SettingsError):  # the sealer finds the same, and reports it until it can be used
            await sealer.open_due()
        self._sealing = ours.supervisor.keep(sealer.run, f"history of {config.name}")

    def _keep_checks(self) -> None:
        """Check the events of other nodes if that is declared now: sealing and offers continue."""
        config, ours = self._config(), self._dependencies
        if self._verifying is not None and not config.verifies_history:
            self._verifying.cancel()
            self._verifying = None
        if self._verifying is None and config.verifies_history and self._witness is not None:
            verifying = Verifying(self._witness, ours.metrics)
            self._verifying = ours.supervisor.keep(verifying.run, f"checks of {config.name}")

    def follow_peers(self) -> None:
        """Offer the checkpoints to the peers that are declared now."""
        if self._offers is not None:
            self._offers.follow(self._config().peers)

    def _note_growth(self) -> None:
        if self._offers is not None:
            self._offers.grown()

    async def end(self, seconds: float) -> None:
        """Seal what is stored, for at most so many seconds, so that no event waits for the next start; then stop."""
        if self._sealer is not None and self._sealing is not None and self._sealer.is_running:
            self._sealer.finish()
            self.is_ending = True
            sealed, _ = await asyncio.wait({self._sealing}, timeout=seconds)
            self.is_ending = False
            if not sealed:
                logger.warning("drain timed out", extra={"seconds": seconds, "group": self._config().name})
        self.stop()

    def stop(self) -> None:
        """End sealing, checks and offers."""
        for task in (self._sealing, self._comparing, self._verifying):
            if task is not None:
                task.cancel()
        if self._offers is not None:
            self._offers.stop()
        self._sealer = self._sealing = self._comparing = self._verifying = self._witness = None
        self._offers = self.answers = self._declared = None


async def _compare_shipped(witness: GroupWitness, shipped: ShippedTrees) -> None:
    """Compare what the lake has of this node's trees with the database, as a peer's notes; then the node may sign."""
    config = witness.config()
    compared = await witness.take_own(await shipped.read(config.name, config.node_name), LAKE)
    witness.gate.heard(LAKE, compared.held)


async def _group_keys(config: Callable[[], GroupConfig], loaded: LoadedKeys) -> GroupKeys:
    """Return this node's keys in a group. Raises `SettingsError` if their file cannot be used."""
    keys = await asyncio.to_thread(loaded.load)
    group = config()
    owner = TreeOwner(group.name, group.node_name, keys.log, keys.retired)
    return GroupKeys(owner, NoteSigner(witness_name(group.name, group.node_name), WITNESS_KEY, keys.witness))
