"""Checks of what retention has evicted: only the oldest events, only what it may, and what peers lack is reported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.checks.violation import Violation
from eventd.simulation.world.loop import BEGIN
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.topology import PlannedLink, Topology


class EvictedEvents:
    """Which events nodes do not hold any more, or have never got because another node has evicted them.

    `contents`: what was emitted, and when.
    """

    def __init__(
        self,
        tables: Mapping[str, StoredTables],
        topology: Topology,
        retentions: Mapping[str, SmallRetention],
        contents: EmittedContents,
    ) -> None:
        self._tables = tables
        self._topology = topology
        self._retentions = retentions
        self._types = contents.types
        self._emitted_at = contents.emitted_at

    def explain(self, host: str, event_id: str) -> bool:
        """Return whether an event that a node does not list was evicted there, or on each way to it with a gap."""
        return bool(self._retentions) and self._explain(host, event_id, frozenset())

    def _explain(self, host: str, event_id: str, seen: frozenset[str]) -> bool:
        tables = self._tables[host]
        if event_id in tables.gone:
            return True
        source = _source_of(event_id)
        if host == source or event_id in tables.positions or host in seen:
            return False
        links = [link for link in self._topology.links if link.dest == host and self._carries(link, event_id)]
        return all(self._explain_link(link, event_id, seen | {host}) for link in links if link.source not in seen)

    def _explain_link(self, link: PlannedLink, event_id: str, seen: frozenset[str]) -> bool:
        sender = self._tables[link.source]
        if event_id in sender.positions:
            return False
        if event_id not in sender.gone:
            return self._explain(link.source, event_id, seen)
        position = sender.gone[event_id]
        if link.is_changed:  # it was another link when the event was evicted, or none, which holds nothing back
            return True
        if link.protocol == "v1":  # which cannot report gaps: only the sender's ledger has them
            return link.source != _source_of(event_id) or self._is_noted(link, position)
        if position <= sender.began(link.dest) and not self._holds(link, event_id):
            return True  # the peer had never been reached: a link claims nothing of what was lost before it began
        return any(after < position <= upto for after, upto in self._tables[link.dest].gaps(link.source))

    def _is_noted(self, link: PlannedLink, position: int) -> bool:
        """Return whether the sender's ledger has the loss of an event for the peer of a link.

        A new epoch may have begun after commits of the sender were lost, and with them what it knew of the peer.
        """
        sender = self._tables[link.source]
        if sender.may_have_renewed:
            return position <= sender.lost_position
        return any(after < position <= upto for after, upto in sender.reported_losses(link.dest))

    def _holds(self, link: PlannedLink, event_id: str) -> bool:
        """Return whether the sender's retention keeps an event until the peer of a link has got it."""
        return self._retentions[link.source].keeps and link.source == _source_of(event_id)

    def _carries(self, link: PlannedLink, event_id: str) -> bool:
        if event_id not in self._types:  # a plugin has derived it
            return True
        source = _source_of(event_id)
        is_meant = link.relay or link.source == source
        return is_meant and source != link.dest and link.takes(self._types[event_id])

    def violations(self, at: float) -> Iterator[Violation]:
        """Yield what is wrong with what nodes have evicted, and with the gaps that they have stored."""
        for host, tables in self._tables.items():
            if host in self._retentions:
                yield from (Violation("V3", host, detail, at) for detail in self._too_early(host))
            yield from (Violation("V10", host, detail, at) for detail in self._wrong_notes(host))
            for node, after, upto, reason in tables.all_gaps():
                yield from (
                    Violation("V10", host, f"a gap of {node} without a loss: {after} to {upto}{why}", at)
                    for why in self._without_loss(host, node, after, upto, reason)
                )

    def _too_early(self, host: str) -> Iterator[str]:
        """Yield the first event that was evicted before it was too old, though there were not too many.

        There are never fewer later: those that are beyond the number at the end may have been so then.
        """
        tables, retention = self._tables[host], self._retentions[host]
        names = sorted(tables.gone, key=tables.gone.__getitem__)
        if retention.max_events is not None:
            by_age = tables.evicted_seq - max(0, tables.head_seq - retention.max_events)
            # Some evicted records are not in `gone`, as their events have later ones: perhaps the last of them.
            unknown = max(0, tables.evicted_seq - len(names))
            names = names[len(names) - max(0, by_age - unknown) :]
        for name in names:
            age = tables.gone_at[name] - self._emitted_at.get(name, BEGIN)
            if not retention.may_take_by_age(age):
                yield f"{name} was evicted {age:.3f} s after it was emitted"
                return

    def _wrong_notes(self, host: str) -> Iterator[str]:
        """Yield where the ledger of a sender and the gaps of its peers contradict each other.

        A sender that was killed before it knew of the peer's answer sends the rest again: its loss may then end later,
        but contains the end of the peer's gap.
        """
        sender = self._tables[host]
        retention = self._retentions.get(host)
        if sender.may_have_renewed:
            return
        for link in self._topology.links_from(host):
            if link.is_changed:
                continue
            noted = sender.reported_losses(link.dest)
            for after, upto in noted:
                span = f"a loss for {link.dest} is in the ledger, {after} to {upto}"
                if upto > sender.evicted_position:
                    yield f"{span}, and only {sender.evicted_position} are evicted"
                elif not link.relay and (retention is None or retention.keeps):
                    yield f"{span}, though {host} keeps what its peers have not got"
            for node, after, upto, reason in self._tables[link.dest].all_gaps():
                if (node, reason) == (host, "lost") and not any(first < upto <= last for first, last in noted):
                    yield f"{link.dest} has a gap, {after} to {upto}, of which the ledger has no loss"

    def _without_loss(self, host: str, node: str, after: int, upto: int, reason: str) -> Iterator[str]:
        """Yield why no loss is behind a gap, in words."""
        sender = self._tables[node]
        if node not in self._retentions or reason != "lost":
            yield ""
            return
        if upto > sender.evicted_position:
            yield f", and only {sender.evicted_position} are evicted"
        links = [link for link in self._topology.links if (link.source, link.dest) == (node, host)]
        # Of evicted events nothing shows through which nodes they came, and whether a relay would send them; nor does a
        # node know what a peer has whose mark is of another epoch than its last receipt. A link that was
        # removed has changed, too.
        if sender.may_have_renewed or not links or any(link.is_changed or link.relay for link in links):
            return
        lost = [name for name, position in sender.gone.items() if after < position <= upto]
        if not any(
            self._carries(link, name) for link in links for name in lost if name not in self._tables[host].ids()
        ):
            yield ", and the node has all of it"
        if self._retentions[node].keeps:
            yield f", and {node} keeps what its peers have not got"


def _source_of(event_id: str) -> str:
    """Return the node whose client emits the event with such an id."""
    return re.split("[.-]", event_id, maxsplit=1)[0]
