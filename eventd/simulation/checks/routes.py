"""Checks of routers: each record that is to be copied has one copy, in the order of its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.routes import (
    FILTERED,
    FROM_GROUP,
    GROUP_TOPIC,
    ROUTE_LISTING,
    ROUTE_TOPIC,
    ROUTE_WRITE,
    ROUTER,
    ROUTERS,
    WRITTEN,
    route_record,
)
from eventd.simulation.world.journal import LOSSES, Asked, Journal

HOPS: Final = 8
"""How often a record is copied by routers that may close a cycle."""
_CYCLES: Final = ("hops-there", "hops-back")
_LOOPS: Final = (("loop-a", "loop-b"), ("loop-b", "loop-a"))


class CopiedRecord(NamedTuple):
    """A record in a listing: its `number`, or the id of an event, and the topic that it was `first` written to."""

    number: Any
    first: str
    tag: str
    seq: int
    stamp: dict[str, Any] | None


class RouteReference:
    """What must be true of the routers of one node by the answers of one run.

    `_whole`: the routers that copy every record of their sources. One whose declaration a restore may have taken was
    declared again, and then copies only the last records, from any one on.
    """

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        self._end = max((asked.answered_at for asked in own), default=begin)
        self._lists = [asked for asked in own if asked.kind == ROUTE_LISTING]
        kept = [asked for asked in own if asked.is_good and not journal.may_have_lost(asked)]
        self._writes = [asked for asked in kept if asked.kind == ROUTE_WRITE]
        self._is_begun = any(asked.kind in (ROUTE_TOPIC, ROUTER) for asked in own)
        self._routers = _first_declarations(own, ROUTER)
        self._emits = [asked for asked in kept if asked.kind == "emit"]
        topics = [each for each in _first_declarations(own, ROUTE_TOPIC) if not journal.may_have_lost(each)]
        self._durable = {asked.path.rpartition("/")[2] for asked in topics if asked.question["durability"] == "fsync"}
        whole = [each for each in self._routers if not journal.may_have_lost(each)]
        self._whole = {each.path.rpartition("/")[2] for each in whole}
        self._contents = EmittedContents(journal)
        self._losses = journal.times(host, *LOSSES)
        self._evicts = host in journal.retentions

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for listing in self._lists:
            yield from self._changed(listing)
        if len(self._routers) < len(ROUTERS):
            if self._is_begun:
                yield self._found("not all routers were acknowledged", self._end)
            return  # records may have been written before
        for at, listing in enumerate(self._lists):
            for name in sorted(self._whole):
                router = ROUTERS[name]
                if router["dest"] == listing.path and name not in _CYCLES and router["source"] != GROUP_TOPIC:
                    yield from self._copies(name, listing, self._lists[at + 1 :])
        last = {listing.path: listing for listing in self._lists}
        if GROUP_TOPIC in last:
            yield from self._acknowledged(last)
            yield from self._at_rest(last)
            if self._whole.issuperset(_CYCLES):
                yield from self._hops(last)
            yield from self._events(last)

    def _found(self, detail: str, at: float, invariant: str = "V12") -> Violation:
        return Violation(invariant, self._host, detail, at - self._begin)

    def _changed(self, listing: Asked) -> Iterator[Violation]:
        """V7: a record, and each of its copies, says what was written or emitted."""
        if listing.path in (FROM_GROUP, GROUP_TOPIC):
            difference = self._contents.payload_difference(listing.answer["records"])
        else:
            wrong = [each for each in listing.answer["records"] if not _is_as_written(each)]
            difference = f"seq {wrong[0]['$seq']} has other data or another tag than was written" if wrong else ""
        if difference:
            yield self._found(f"{listing.path}: {difference}", listing.answered_at, "V7")

    def _copies(self, name: str, listing: Asked, later: Sequence[Asked]) -> Iterator[Violation]:
        """At any time the copies are the first of the records to be copied, each once, in their order."""
        router = ROUTERS[name]
        # Of two clients that list at the same time, the one may have read the source before the copies were made.
        sources = (each for each in later if each.path == router["source"] and each.asked_at >= listing.answered_at)
        source = next(sources, None)
        if source is None or any(listing.asked_at <= at <= source.answered_at for at in self._losses):
            return
        wanted = [each.number for each in _selected(router, source)]
        copies = [each.number for each in _copied(router, listing)]
        if copies != wanted[: len(copies)]:
            detail = f"{router['dest']} has {_some(copies, wanted)} from {router['source']}, by {name}"
            yield self._found(detail, listing.answered_at)

    def _at_rest(self, last: dict[str, Asked]) -> Iterator[Violation]:
        """At rest every record that is to be copied is copied: all of them, or the last ones."""
        for name, router in ROUTERS.items():
            if name in _CYCLES or router["source"] == GROUP_TOPIC:
                continue
            source, dest = last[router["source"]], last[router["dest"]]
            wanted, copies = _selected(router, source), _copied(router, dest)
            if name not in self._whole:
                wanted = wanted[len(wanted) - len(copies) :]
            numbers = [each.number for each in wanted], [each.number for each in copies]
            if numbers[0] != numbers[1]:
                detail = f"at rest {router['dest']} has {_some(*reversed(numbers))} from {router['source']}, by {name}"
                yield self._found(detail, dest.answered_at)
            seqs = {each.number: each.seq for each in wanted}
            for each in copies:
                if each.stamp is not None and each.stamp["source_seq"] != seqs.get(each.number):
                    detail = f"{router['dest']}: record {each.number} names {each.stamp}, and has seq"
                    yield self._found(f"{detail} {seqs.get(each.number)}", dest.answered_at)
                    break

    def _hops(self, last: dict[str, Asked]) -> Iterator[Violation]:
        """A record of a cycle is copied a certain number of times, over restarts too."""
        there, back = (Counter(each.number for each in records_of(last[topic])) for topic in ("hops-b", "hops-a"))
        for number, count in back.items():
            if (there[number], count) != (HOPS // 2, HOPS // 2 + 1):
                detail = f"record {number} is {count} times in hops-a, and {there[number]} times in hops-b"
                yield self._found(detail, last["hops-b"].answered_at)
                return

    def _events(self, last: dict[str, Asked]) -> Iterator[Violation]:
        """The copies of the group's events are its last ones, with all that were acknowledged since the router."""
        copies = [each.number for each in records_of(last[FROM_GROUP])]
        wanted = [each.number for each in records_of(last[GROUP_TOPIC])]
        at = last[FROM_GROUP].answered_at
        # What is still stored is copied; of what is evicted, copies may be there.
        copied = copies[max(0, len(copies) - len(wanted)) :] if self._evicts else copies
        if copied != wanted[len(wanted) - len(copied) :]:
            yield self._found(f"{FROM_GROUP} has {_some(copies[::-1], wanted[::-1])}, from its end", at)
        begun = max(asked.answered_at for asked in self._routers)
        is_whole = all(name in self._whole for name, router in ROUTERS.items() if router["source"] == GROUP_TOPIC)
        for emit in self._emits if is_whole else ():
            new = [each["id"] for each in emit.answer["results"] if each["result"] == "new"]
            missing = set(new) - set(copies)
            if missing and emit.asked_at > begun and not self._is_lost(last[FROM_GROUP], len(missing)):
                yield self._found(f"{FROM_GROUP} lacks {min(missing)}, emitted after the router began", at)
                return

    def _is_lost(self, copies: Asked, missing: int) -> bool:
        """Return whether readers of the copies learn that so many records were evicted before they were copied."""
        evicted = sum(last - first + 1 for first, last in copies.answer["losses"])
        return self._evicts and evicted >= missing

    def _acknowledged(self, last: dict[str, Asked]) -> Iterator[Violation]:
        """V3: the topics have what was acknowledged, but for a power loss of those that do not wait for the disk.

        The topics of loops have each record once.
        """
        for topic in WRITTEN:
            listed = Counter(each.number for each in records_of(last[topic]))
            twice = [number for number, count in listed.items() if count > 1 and topic != "hops-a"]
            if twice:
                yield self._found(f"{topic} has record {twice[0]} {listed[twice[0]]} times", last[topic].answered_at)
            if self._losses and topic not in self._durable:
                continue
            for write in self._writes:
                numbers = [each["data"]["number"] for each in write.question["records"]]
                if write.path.endswith(f"/{topic}") and not set(numbers) <= listed.keys():
                    detail = f"{topic}: record {numbers[0]} acknowledged and lost"
                    yield self._found(detail, last[topic].answered_at, "V3")


def _first_declarations(own: Sequence[Asked], kind: str) -> list[Asked]:
    """Return the first answer to the declaration of each topic or router."""
    first: dict[str, Asked] = {}
    for asked in own:
        if asked.kind == kind and asked.is_good:
            first.setdefault(asked.path, asked)
    return list(first.values())


def _is_as_written(record: dict[str, Any]) -> bool:
    """Return whether a record, or a copy of one, has the data and the tag with which it was first written."""
    written = route_record(record["data"]["number"], record["data"]["first"])
    return bool(record["data"] == written["data"] and record.get("$tag") == written["tag"])


def records_of(listing: Asked) -> list[CopiedRecord]:
    """Return the records of a listing, in their order."""
    found = []
    for each in listing.answer["records"]:
        data, meta = each["data"], each.get("meta") or {}
        number, first = (meta["id"], GROUP_TOPIC) if "id" in meta else (data["number"], data["first"])
        found.append(CopiedRecord(number, first, each.get("$tag", ""), each["$seq"], meta.get("_topics_router")))
    return found


def _selected(router: dict[str, Any], source: Asked) -> list[CopiedRecord]:
    """Return the records of a source that a router copies; of a loop, only those that were first written there."""
    found = records_of(source)
    if "filter" in router:
        found = [each for each in found if each.tag.startswith(FILTERED[2].rstrip("*"))]
    if (router["source"], router["dest"]) in _LOOPS:
        found = [each for each in found if each.first == router["source"]]
    return found


def _copied(router: dict[str, Any], dest: Asked) -> list[CopiedRecord]:
    """Return the records of a destination that a router has copied."""
    found = records_of(dest)
    several = [each for each in ROUTERS.values() if each["dest"] == router["dest"]]
    if len(several) > 1 or (router["source"], router["dest"]) in _LOOPS:
        found = [each for each in found if each.first == router["source"]]
    return found


def _some(copies: list[Any], wanted: list[Any]) -> str:
    at = next((at for at, (one, other) in enumerate(zip(copies, wanted, strict=False)) if one != other), None)
    if at is None:
        return f"{len(copies)} records of {len(wanted)}"
    return f"record {copies[at]} in the place of {wanted[at]}"
