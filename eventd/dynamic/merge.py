"""Merges the effective configuration: declared resources, without the masked ones, plus the resources of parts. Pure.

A part that cannot be used is left out as a whole, with the reason, and does not affect others. If parts of different
owners define the same resource, the owner that has defined it for longer wins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import NamedTuple

from eventd.dynamic.prepared import MASK, AddedResource, Directive, Entry, PreparedPart, Startup
from eventd.resources.plugin_configuration import PolicyRule
from eventd.store.parts.claims import ResourceKey
from federation.event import format_time


class Suppression(NamedTuple):
    """A masked declared resource: by which parts (joined by commas), until when (microseconds), and why."""

    target: ResourceKey
    masked_by: str
    masked_until: int
    reason: str


class Addition(NamedTuple):
    """The key of a resource that a part adds, with the part's source and generation."""

    source: str
    generation: int
    key: ResourceKey


class IneffectivePart(NamedTuple):
    """The source of a part that is left out before its end, and the reason."""

    source: str
    reason: str


@dataclass(frozen=True)
class Effective:
    """The outcome of a merge.

    `next_change`, in microseconds, is when the next resource or part ends, used or left out; None for never.
    """

    entries: Sequence[Entry]
    suppressed: Sequence[Suppression]
    added: Sequence[Addition]
    active: Sequence[str]
    expired: Sequence[str]
    set_aside: Sequence[IneffectivePart]
    warnings: Sequence[str]
    next_change: int | None

    @cached_property
    def active_sources(self) -> frozenset[str]:
        """Return the sources of the parts that are used."""
        return frozenset(self.active)

    def text(self) -> bytes:
        """The canonical JSON list of its resources."""
        return b"[" + b",".join(entry.text for entry in self.entries) + b"]"

    def etag(self) -> str:
        """The SHA-256 of its resources in hex, without the annotations that name their events."""
        return hashlib.sha256(b"[" + b",".join(entry.content for entry in self.entries) + b"]").hexdigest()


class _CurrentPart(NamedTuple):
    """A part, and those of its resources and directives that have not ended."""

    part: PreparedPart
    given: Sequence[AddedResource]
    directives: Sequence[Directive]


def merge(startup: Startup, parts: Iterable[PreparedPart], policies: Iterable[PolicyRule], now: int) -> Effective:
    """Merge the effective configuration at `now`, independent of the order of `parts` and `policies`.

    No two parts may have the same source. A faulty part is left out and never raises.
    """
    permits = _permits(policies)
    sound: list[_CurrentPart] = []
    aside: list[IneffectivePart] = []
    expired: list[str] = []
    ends: list[int] = []
    for part in sorted(parts, key=lambda part: part.source):
        ends += [end for end in part.ends if end > now]
        if part.ends_at <= now:
            expired.append(part.source)
            continue
        live = _alive(part, now)
        if reason := part.flaw or _flaw_of(live, startup, permits):
            ends.append(part.ends_at)
            aside.append(IneffectivePart(part.source, reason))
        else:
            sound.append(live)
    lost = _settle_contests(sound)
    aside += [IneffectivePart(source, reason) for source, reason in lost.items()]
    used = [live for live in sound if live.part.source not in lost] if lost else sound
    return _compose(startup, used, sorted(aside), expired, min(ends, default=None))


def _alive(part: PreparedPart, now: int) -> _CurrentPart:
    over = part.ends[0] <= now if part.ends else False  # most parts end as a whole
    given = [one for one in part.given if one.ends_at > now] if over else part.given
    return _CurrentPart(part, given, part.directives if part.directives_end > now else ())


Permits = Mapping[str, set[tuple[str, ResourceKey]]]
"""By source or owner, the permitted pairs of an operation and its target."""


def _permits(policies: Iterable[PolicyRule]) -> Permits:
    permits: dict[str, set[tuple[str, ResourceKey]]] = {}
    for rule in policies:
        found = permits.setdefault(rule.source, set())
        found |= {(operation, ResourceKey(*target)) for operation in rule.operations for target in rule.targets}
    return permits


def _flaw_of(live: _CurrentPart, startup: Startup, permits: Permits) -> str:
    """Return why a part cannot be used with the declared resources and policies; empty if it can."""
    for one in live.given:
        if one.entry.key in startup.keys:
            return f"{one.entry.key} is declared"
    for op, target, _ in live.directives:
        if op != MASK:
            return f"{target}: there is no operation {op!r}"
        if target not in startup.keys:
            return f"{target}, which it masks, is not declared"
        if all((op, target) not in permits.get(name, ()) for name in (live.part.source, live.part.owner)):
            return f"no DynamicOverridePolicy lets {live.part.owner} mask {target}"
    return ""


# --- resources of several parts -----------------------------------------------------------------------------------


class _Claimant(NamedTuple):
    """A part that defines a resource; sorts first if its owner has defined it for longest."""

    since: int
    owner: str
    source: str


def _settle_contests(sound: Sequence[_CurrentPart]) -> dict[str, str]:
    """Resolve resources that several parts define. Return, by source, why each losing part lost.

    A part that loses one resource is left out, so it does not take resources from younger parts.
    """
    contests = _contests(sound)
    if not contests:
        return {}
    claims: dict[str, list[ResourceKey]] = {}
    for key in sorted(contests):
        for claimant in contests[key]:
            claims.setdefault(claimant.source, []).append(key)
    holders: dict[ResourceKey, _Claimant] = {}
    lost: dict[str, str] = {}
    for source in _elders_first(contests):
        taken = next((key for key in claims[source] if key in holders), None)
        if taken is not None:
            elder = holders[taken]
            lost[source] = f"{taken} is defined by {elder.source} since {format_time(elder.since)}"
            continue
        for key in claims[source]:
            holders[key] = next(claimant for claimant in contests[key] if claimant.source == source)
    return lost


def _contests(sound: Sequence[_CurrentPart]) -> dict[ResourceKey, list[_Claimant]]:
    """Return the keys that several parts define, each with its parts, the oldest claim first."""
    first: dict[ResourceKey, _Claimant] = {}
    contests: dict[ResourceKey, list[_Claimant]] = {}
    for live in sound:
        for one in live.given:
            claimant = _Claimant(one.since, live.part.owner, live.part.source)
            elder = first.setdefault(one.entry.key, claimant)
            if elder is not claimant:
                contests.setdefault(one.entry.key, [elder]).append(claimant)
    return {key: sorted(claimants) for key, claimants in contests.items()}


def _elders_first(contests: Mapping[ResourceKey, Sequence[_Claimant]]) -> Iterable[str]:
    """Order the sources so that each comes after those that are older for some resource.

    Where each waits for another, the remaining one with the oldest claim comes next.
    """
    ages: dict[str, _Claimant] = {}
    for claimant in chain.from_iterable(contests.values()):
        ages[claimant.source] = min(claimant, ages.get(claimant.source, claimant))
    waiting = dict.fromkeys(ages, 0)
    behind: dict[str, list[str]] = {source: [] for source in ages}
    for claimants in contests.values():
        for elder, younger in pairwise(claimants):
            behind[elder.source].append(younger.source)
            waiting[younger.source] += 1
    ready = [ages[source] for source, elders in waiting.items() if not elders]
    heapify(ready)
    stuck = iter(sorted(ages.values()))
    placed: set[str] = set()
    while len(placed) < len(ages):
        source = (heappop(ready) if ready else next(stuck)).source
        if source in placed:
            continue
        placed.add(source)
        yield source
        for younger_source in behind[source]:
            waiting[younger_source] -= 1
            if not waiting[younger_source]:
                heappush(ready, ages[younger_source])


# --- the outcome -----------------------------------------------------------------------------------------------------


def _compose(
    startup: Startup,
    used: Sequence[_CurrentPart],
    aside: Sequence[IneffectivePart],
    expired: Sequence[str],
    next_change: int | None,
) -> Effective:
    suppressed = _suppressed(used)
    masked = {one.target for one in suppressed}
    dynamic = sorted(((one.entry, live.part) for live in used for one in live.given), key=lambda found: found[0].order)
    return Effective(
        entries=[
            *(entry for entry in startup.entries if entry.key not in masked),
            *(entry for entry, _ in dynamic),
        ],
        suppressed=suppressed,
        added=[Addition(part.source, part.generation, entry.key) for entry, part in dynamic],
        active=[live.part.source for live in used],
        expired=expired,
        set_aside=aside,
        warnings=[warning for live in used for warning in live.part.warnings],
        next_change=next_change,
    )


def _suppressed(used: Sequence[_CurrentPart]) -> list[Suppression]:
    masks: dict[ResourceKey, list[tuple[str, int, str]]] = {}
    for live in used:
        for _, target, reason in live.directives:
            masks.setdefault(target, []).append((live.part.source, live.part.directives_end, reason))
    return [
        Suppression(
            target,
            ",".join(sorted({f"DynamicConfigPart/{source}" for source, _, _ in found})),
            max(end for _, end, _ in found),
            "; ".join(sorted({reason for _, _, reason in found if reason})),
        )
        for target, found in sorted(masks.items(), key=lambda item: (item[0].kind, item[0].name, item[0].api_version))
    ]
