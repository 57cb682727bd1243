"""The selection of a peer: its selector and `relay`, and for a repair the listed positions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from eventd.log.core.blocks import Block, names
from eventd.log.core.values import Record
from eventd.log.core.wire_page import PeerFilter
from federation.selector import Selector


class PeerDeclaration(Protocol):
    """Interface: the part of a peer's declaration that decides which records the peer receives."""

    @property
    def selector(self) -> Selector: ...

    @property
    def relay(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records a peer is to get: those that match the selector and, unless `relay`, entered the log at this node.

    If `positions` are given, only records at these; `without` excludes the records that another selection covers.
    """

    selector: Selector = field(default_factory=Selector)
    relay: bool = False
    positions: frozenset[int] = frozenset()
    without: Selection | None = None

    @classmethod
    def of(cls, peer: PeerDeclaration) -> Self:
        """Return the selection of the peer's declaration."""
        return cls(peer.selector, peer.relay)

    def matches(self, record: Record) -> bool:
        """Return whether the record is meant for the peer; it may still be withheld: expired, or in path."""
        return (
            (self.relay or not record.path)
            and self.selector.matches(type=record.tag, subject=record.subject, source=record.node)
            and (not self.positions or record.position in self.positions)
            and (self.without is None or not self.without.matches(record))
        )

    def settles(self, block: Block) -> bool | None:
        """Return True if all of a block's records are meant for the peer, False if none is; None: check each one."""
        if not (self.relay or block.own):
            return False
        if self.positions:
            return False if self.positions.isdisjoint(range(block.position, block.last + 1)) else None
        excluded = False if self.without is None else self.without.settles(block)
        types = names(block.types) if self.selector.types else frozenset()
        if excluded or (types and not self.selector.may_match(types)):
            return False
        whole = excluded is False and types is not None and all(map(self.selector.takes_type, types))
        others = self.selector.subject_prefixes or self.selector.sources or self.selector.payload
        return True if whole and not others else None

    def wanted_by(self, peer: str) -> PeerFilter:
        """Return the filter of what to send to the node `peer`: this selection without records expired or in path."""
        return PeerFilter(peer, self)

    def widens(self, earlier: Selection) -> bool:
        """Return whether this may select a record that `earlier` did not; compares only the selectors and `relay`."""
        return self.selector.widens(earlier.selector) or (self.relay and not earlier.relay)

    def to_json(self) -> dict[str, Any]:
        """Return the selection's stored form. No peer's declaration has `sources` or a `payload`; callbacks may."""
        found: dict[str, Any] = {}
        if self.selector.types:
            found["types"] = list(self.selector.types)
        if self.selector.subject_prefixes:
            found["subjectPrefixes"] = list(self.selector.subject_prefixes)
        if self.selector.sources:
            found["sources"] = list(self.selector.sources)
        if self.selector.payload:
            found["payload"] = dict(self.selector.payload)
        if self.relay:
            found["relay"] = True
        if self.positions:
            found["positions"] = sorted(self.positions)
        if self.without is not None:
            found["without"] = self.without.to_json()
        return found

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the selection that `to_json` stored."""
        without = stored.get("without")
        return cls(
            Selector.of(
                types=stored.get("types", ()),
                subject_prefixes=stored.get("subjectPrefixes", ()),
                sources=stored.get("sources", ()),
                payload=stored.get("payload"),
            ),
            bool(stored.get("relay", False)),
            frozenset(stored.get("positions", ())),
            None if without is None else cls.from_json(without),
        )
