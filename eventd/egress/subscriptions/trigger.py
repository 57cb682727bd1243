"""What triggers a subscription: matching events, and events that revoke earlier ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import msgspec

from eventd.log.core.blocks import Block, names
from eventd.log.core.values import Record
from eventd.resources.plugin_configuration import SubscriptionConfig
from federation.event import DECODER, Event, is_alive, written
from federation.selector import Selector

OBSERVED, EXPIRED = ".observed", ".expired"
"""The suffixes of two event types, of which the second revokes the first."""
DERIVED_BY = "routerd.net/derived-by"
"""Payload key of an event that a plugin returned: the subscriptions it was derived by, in order, separated
by blanks."""


@lru_cache(maxsize=256)
def _type_search(types: tuple[str, ...], endings: frozenset[str]) -> Callable[[str], object]:
    """Return a function that searches a text of canonical events for `types`, which may have wildcards, and `endings`.

    A false result proves that no such event is in the text.
    """
    if "*" in types or not types:
        return bool
    begun = [written(name.removesuffix("*"))[: -1 if name.endswith(".*") else None] for name in (*types, *endings)]
    return re.compile("|".join(re.escape(f'"type":{text}') for text in sorted(begun))).search


class TriggerEvent(NamedTuple):
    """An event that concerns a subscription.

    `runs`: the plugin gets it; `ends`: it revokes earlier events. An event with neither was run before, by an earlier
    trigger: a backfill only has to know about it.
    """

    record: Record
    event: Event
    runs: bool
    ends: bool

    @property
    def key(self) -> tuple[str, str]:
        """Return its type and dedupe key: of the events of a batch with the same type and key, the plugin gets the
        last."""
        return self.event.type, self.event.dedupe_key

    @property
    def about(self) -> str:
        """Return its subject; without one, a text with its type and dedupe key."""
        return self.event.subject or f"\n{self.event.type}\n{self.event.dedupe_key}"

    @property
    def position(self) -> int:
        return self.record.position

    @property
    def event_id(self) -> str:
        return self.record.event_id


@dataclass(frozen=True, slots=True)
class SubscriptionTrigger:
    """Selects the events of one subscription, from its cursor on or, for a backfill, from the past.

    `derivation` is `<node>/<subscription>`: events derived by it do not trigger it again. `selector` tests type,
    subject and source; `payload` has pairs that the event's payload must have, where a missing value is empty.
    `withdraws`: types `….expired` revoke those called `….observed`. Events that have expired at `now` are not selected;
    at 0, none has. `positions`, if not empty, limits the events; `without` is the earlier trigger of a subscription
    that was changed, whose events were run.
    """

    selector: Selector
    payload: tuple[tuple[str, str], ...]
    withdraws: bool
    derivation: str
    now: int = 0
    positions: frozenset[int] = frozenset()
    without: SubscriptionTrigger | None = None

    @classmethod
    def of(cls, config: SubscriptionConfig, node: str) -> Self:
        """Return the trigger of a declaration."""
        asked = config.selector
        return cls(
            msgspec.structs.replace(asked, payload=()),
            asked.payload,
            config.withdraw_on_expired,
            f"{node}/{config.name}",
        )

    def at(self, now: int) -> Self:
        """Return a trigger that does not select events that have expired at this time (microseconds)."""
        return replace(self, now=now)

    def only(self, positions: Iterable[int]) -> Self:
        """Return a trigger that selects only events at these positions; none given: no limit."""
        return replace(self, positions=frozenset(positions))

    @property
    def _endings(self) -> frozenset[str]:
        if not self.withdraws:
            return frozenset()
        kinds = (name for name in self.selector.types if name.endswith(OBSERVED))
        return frozenset(name.removesuffix(OBSERVED) + EXPIRED for name in kinds)

    def rules_out(self, block: Block) -> bool:
        """Return whether a block certainly has no matching event, without splitting it."""
        if self.positions and self.positions.isdisjoint(range(block.position, block.last + 1)):
            return True
        types, sources = names(block.types), names(block.sources)
        if types is None:
            return not self.may_be(block.text)
        return not (self.selector.may_match(types) or types & self._endings) or bool(
            self.selector.sources and sources is not None and sources.isdisjoint(self.selector.sources)
        )

    def may_be(self, text: str) -> object:
        """Return a false value only if no event in the text has a selected type, or one that revokes it."""
        return _type_search(self.selector.types, self._endings)(text)

    def take(self, record: Record) -> TriggerEvent | None:
        """Return the event of a record if it matches or revokes, and has not expired; None otherwise."""
        if not is_alive(record.expires_at, self.now) or (self.positions and record.position not in self.positions):
            return None
        runs = self._fits(record, record.tag)
        ends = self._ends(record)
        if not (runs or ends):
            return None
        event = DECODER.decode(record.body)
        runs = runs and self._holds(event.payload) and not self._derived(event)
        ends = ends and self._agrees(event.payload)
        if not (runs or ends):
            return None
        if self.without is not None and self.without.take(record) is not None:
            runs = False  # but it may revoke an earlier one
        return TriggerEvent(record, event, runs, ends)

    def _fits(self, record: Record, tag: str) -> bool:
        return self.selector.matches(type=tag, subject=record.subject, source=record.node)

    def _ends(self, record: Record) -> bool:
        """Return whether it is an `….expired` event whose `….observed` form, payload aside, would match."""
        if not (self.withdraws and record.tag.endswith(EXPIRED)):
            return False
        return self._fits(record, record.tag.removesuffix(EXPIRED) + OBSERVED)

    def _holds(self, payload: Mapping[str, str]) -> bool:
        return all(payload.get(key, "") == value for key, value in self.payload)

    def _agrees(self, payload: Mapping[str, str]) -> bool:
        """Return whether the payload contradicts none of the pairs: a revoking event need not repeat them."""
        return all(payload.get(key, value) == value for key, value in self.payload)

    def _derived(self, event: Event) -> bool:
        return self.derivation in event.payload.get(DERIVED_BY, "").split()

    def widens(self, earlier: SubscriptionTrigger) -> bool:
        """Return whether this may match an event that `earlier` did not."""
        return (
            self.selector.widens(earlier.selector)
            or not set(earlier.payload) <= set(self.payload)
            or (self.withdraws and not earlier.withdraws)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, without `now`."""
        found: dict[str, Any] = {
            "types": list(self.selector.types),
            "subjectPrefixes": list(self.selector.subject_prefixes),
            "sources": list(self.selector.sources),
            "payload": dict(self.payload),
            "withdraws": self.withdraws,
            "derivation": self.derivation,
        }
        if self.positions:
            found["positions"] = sorted(self.positions)
        if self.without is not None:
            found["without"] = self.without.to_json()
        return found

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the trigger of a stored form."""
        without = stored.get("without")
        return cls(
            Selector.of(types=stored["types"], subject_prefixes=stored["subjectPrefixes"], sources=stored["sources"]),
            tuple(sorted(stored["payload"].items())),
            stored["withdraws"],
            stored["derivation"],
            positions=frozenset(stored.get("positions", ())),
            without=None if without is None else cls.from_json(without),
        )
