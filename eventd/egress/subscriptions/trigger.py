"""What sets a subscription off: the events it asks for, and those that end what it made of earlier ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import msgspec

from eventd.log.core.blocks import Block, names
from eventd.log.core.values import Record
from eventd.resources.effective import SubscriptionConfig
from federation.event import DECODER, Event, is_alive, written
from federation.selector import Selector

OBSERVED, EXPIRED = ".observed", ".expired"
"""How the types of two facts end of which the second revokes the first."""
DERIVED_BY = "routerd.net/derived-by"
"""Payload key of an event that a plugin returned: the subscriptions it was derived by, the first one first."""


@lru_cache(maxsize=256)
def _occurs(types: tuple[str, ...], endings: frozenset[str]) -> Callable[[str], object]:
    """Finds any of these types in canonical events: there is one way only to write them."""
    if "*" in types or not types:
        return bool
    begun = [written(name.removesuffix("*"))[: -1 if name.endswith(".*") else None] for name in (*types, *endings)]
    return re.compile("|".join(re.escape(f'"type":{text}') for text in sorted(begun))).search


class Seen(NamedTuple):
    """An event that concerns a subscription. `runs`: the plugin gets it; `ends`: it revokes earlier ones.

    One that does neither was run before, in its own order: a backfill only has to know of it.
    """

    record: Record
    event: Event
    runs: bool
    ends: bool

    @property
    def key(self) -> tuple[str, str]:
        """Of several with one key the last stands for all."""
        return self.event.type, self.event.dedupe_key

    @property
    def about(self) -> str:
        """What it speaks of."""
        return self.event.subject or f"\n{self.event.type}\n{self.event.dedupe_key}"

    @property
    def position(self) -> int:
        return self.record.position

    @property
    def event_id(self) -> str:
        return self.record.event_id


@dataclass(frozen=True, slots=True)
class Trigger:
    """The events of interest to one subscription, from its cursor on or, for a backfill, out of the past.

    `derivation` is `<node>/<subscription>`: what was derived by it does not set it off again, or it would never end.
    `selector` judges all but the payload, whose pairs must all be equal. `now` hides what has expired. `positions`,
    where given, are the only ones; `without` is an earlier, narrower trigger: what it covered was run.
    """

    selector: Selector
    payload: tuple[tuple[str, str], ...]
    withdraws: bool
    derivation: str
    now: int = 0
    positions: frozenset[int] = frozenset()
    without: Trigger | None = None

    @classmethod
    def of(cls, config: SubscriptionConfig, node: str) -> Self:
        """What the declaration asks for."""
        asked = config.selector
        return cls(
            msgspec.structs.replace(asked, payload=()),
            asked.payload,
            config.withdraw_on_expired,
            f"{node}/{config.name}",
        )

    def at(self, now: int) -> Self:
        """The same at a time: what has expired by then is of no interest."""
        return replace(self, now=now)

    def only(self, positions: Iterable[int]) -> Self:
        """Of the events at these positions alone."""
        return replace(self, positions=frozenset(positions))

    @property
    def _endings(self) -> frozenset[str]:
        if not self.withdraws:
            return frozenset()
        kinds = (name for name in self.selector.types if name.endswith(OBSERVED))
        return frozenset(name.removesuffix(OBSERVED) + EXPIRED for name in kinds)

    def rules_out(self, block: Block) -> bool:
        """Whether nothing in a block can be of interest, as far as that shows without taking it apart."""
        if self.positions and self.positions.isdisjoint(range(block.position, block.last + 1)):
            return True
        types, sources = names(block.types), names(block.sources)
        if types is None:
            return not self.may_be(block.text)
        return not (self.selector.may_match(types) or types & self._endings) or bool(
            self.selector.sources and sources is not None and sources.isdisjoint(self.selector.sources)
        )

    def may_be(self, text: str) -> object:
        """Whether a type that is asked for, or one that revokes it, occurs in the text; it may be of something else."""
        return _occurs(self.selector.types, self._endings)(text)

    def take(self, record: Record) -> Seen | None:
        """The event of a record, if it is of interest and has not expired."""
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
            runs = False  # but it may revoke what comes before it here
        return Seen(record, event, runs, ends)

    def _fits(self, record: Record, tag: str) -> bool:
        return self.selector.matches(type=tag, subject=record.subject, source=record.node)

    def _ends(self, record: Record) -> bool:
        """Whether the event revokes one that is asked for: it is judged as that would be."""
        if not (self.withdraws and record.tag.endswith(EXPIRED)):
            return False
        return self._fits(record, record.tag.removesuffix(EXPIRED) + OBSERVED)

    def _holds(self, payload: Mapping[str, str]) -> bool:
        return all(payload.get(key, "") == value for key, value in self.payload)

    def _agrees(self, payload: Mapping[str, str]) -> bool:
        """Whether nothing in it says that it speaks of another thing: who revokes a fact need not repeat all of it."""
        return all(payload.get(key, value) == value for key, value in self.payload)

    def _derived(self, event: Event) -> bool:
        return self.derivation in event.payload.get(DERIVED_BY, "").split()

    def widens(self, earlier: Trigger) -> bool:
        """Whether this may take an event that `earlier` did not."""
        return (
            self.selector.widens(earlier.selector)
            or not set(earlier.payload) <= set(self.payload)
            or (self.withdraws and not earlier.withdraws)
        )

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
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
        """As it was stored."""
        without = stored.get("without")
        return cls(
            Selector.of(types=stored["types"], subject_prefixes=stored["subjectPrefixes"], sources=stored["sources"]),
            tuple(sorted(stored["payload"].items())),
            stored["withdraws"],
            stored["derivation"],
            positions=frozenset(stored.get("positions", ())),
            without=None if without is None else cls.from_json(without),
        )
