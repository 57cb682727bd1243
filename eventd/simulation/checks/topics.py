"""Checks of topics by answers: what was written stays as its durability says, and what was read does not change.

A record has a number, which is unique at its node, so that it is recognised wherever it is listed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.step import LoadStep
from eventd.simulation.load.topic_list import LISTING
from eventd.simulation.load.topic_writes import record
from eventd.simulation.world.journal import NEW_EPOCHS, Asked, Journal

_DURABLE: Final = "fsync"


@dataclass(frozen=True, slots=True)
class TopicWrite:
    """A write that was acknowledged: the seqs of its records by their numbers."""

    topic: str
    durability: str
    asked_at: float
    answered_at: float
    seqs: dict[int, int]

    @property
    def is_durable(self) -> bool:
        """Return whether a power loss leaves it."""
        return self.durability == _DURABLE


class TopicReference:
    """What must be true of the topics of one node by the answers of one run."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        self._power = journal.times(host, "power")
        self._commands = journal.times(host, *NEW_EPOCHS)
        self._restored = [each.restored_at for each in journal.restores if each.host == host]
        kept = [asked for asked in journal.asked if asked.is_good and not journal.may_have_lost(asked)]
        self._writes = [_write_of(asked) for asked in kept if (asked.kind, asked.host) == ("write", host)]
        self._emits = [asked for asked in kept if (asked.kind, asked.host) == ("emit", host)]
        self._listings = _own(journal, LISTING, host)

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for listing in self._listings:
            yield from self._listed(listing)
        yield from self._changed()
        yield from self._epochs()
        yield from self._order()
        yield from self._holes()

    def _found(self, invariant: str, detail: str, at: float) -> Violation:
        return Violation(invariant, self._host, detail, at - self._begin)

    def _listed(self, listing: Asked) -> Iterator[Violation]:
        """V3, V5, V7: a list has what was acknowledged, each record once, and its seqs have no hole."""
        topic, at = listing.path, listing.answered_at
        numbers = numbers_of(listing)
        seqs = list(numbers)
        if seqs != list(range(1, listing.answer["head_seq"] + 1)):
            yield self._found("V7", f"{topic}: {len(seqs)} records to seq {listing.answer['head_seq']}", at)
        if len(set(numbers.values())) < len(numbers):
            yield self._found("V5", f"{topic} has a record twice", at)
        wrong = [each["$seq"] for each in listing.answer["records"] if each["data"] != record(each["data"]["number"])]
        if wrong:
            yield self._found("V7", f"{topic}: seq {wrong[0]} has other data than was written", at)
        for write in self._writes:
            if write.topic != topic or write.answered_at > listing.asked_at:
                continue
            lost = [number for number, seq in write.seqs.items() if numbers.get(seq) != number]
            if not lost:
                continue
            if write.is_durable or not self._lost_power(write.asked_at, at):
                yield self._found("V3", f"{topic}: record {lost[0]} of {write.durability} acknowledged and lost", at)
            elif len(lost) < len(write.seqs):
                yield self._found("V3", f"{topic}: a part of the write of record {lost[0]} is lost", at)
            elif _log_epoch(listing) in self._epochs_before(write.answered_at):
                yield self._found("V3", f"{topic}: record {lost[0]} is lost without a new epoch", at)

    def _lost_power(self, begin: float, end: float) -> bool:
        return any(begin <= at <= end for at in self._power)

    def _is_renewed(self, begin: float, end: float) -> bool:
        return self._lost_power(begin, end) or any(begin <= at <= end for at in self._commands)

    def _epochs_before(self, at: float) -> set[str]:
        """Return the epochs of the log that were seen before the power loss that follows."""
        until = min((each for each in self._power if each >= at), default=0.0)
        return {_log_epoch(each) for each in self._listings if each.answered_at <= until} - {""}

    def _changed(self) -> Iterator[Violation]:
        """V7: a seq of an epoch has one record for ever."""
        known: dict[tuple[str, str, int], int] = {}
        for listing in self._listings:
            for seq, number in numbers_of(listing).items():
                before = known.setdefault((listing.path, listing.answer["epoch"], seq), number)
                if before != number:
                    detail = f"{listing.path}: seq {seq} was record {before}, and is {number} in the same epoch"
                    yield self._found("V7", detail, listing.answered_at)
                    return

    def _epochs(self) -> Iterator[Violation]:
        """V16: a new epoch has a power loss or an operator's command before it.

        Once for each restore it may come later: when a peer shows a tree that the node opened after the copy.
        """
        listed = [each for each in self._listings if each.answer["epoch"]]
        unasked = 0
        for before, later in itertools.pairwise(listed):
            epochs = _log_epoch(before), _log_epoch(later)
            if epochs[0] == epochs[1] or self._is_renewed(before.asked_at, later.answered_at):
                continue
            unasked += 1
            if unasked > sum(at <= later.answered_at for at in self._restored):
                yield self._found("V16", f"epoch {epochs[1]} without a loss", later.answered_at)
                return

    def _order(self) -> Iterator[Violation]:
        """V6: a write that was answered before another one was asked has the lower seqs."""
        for topic in dict.fromkeys(write.topic for write in self._writes):
            last: list[TopicWrite] = []
            for write in (each for each in self._writes if each.topic == topic):
                for before in last:
                    late = before.answered_at < write.asked_at and max(before.seqs.values()) > min(write.seqs.values())
                    if late and not self._lost_power(before.asked_at, write.answered_at):
                        detail = f"{topic}: seq {min(write.seqs.values())} was given after {max(before.seqs.values())}"
                        yield self._found("V6", detail, write.answered_at)
                        return
                last.append(write)

    def _holes(self) -> Iterator[Violation]:
        """V3: what a power loss takes is a suffix of the commits, and nothing before a durable one."""
        final = {listing.path: numbers_of(listing) for listing in self._listings}
        left = [each for each in self._writes if _is_left(each, final)]
        later = [(each.asked_at, f"of {each.topic}") for each in left]
        later += [(asked.asked_at, "of events") for asked in self._emits]
        for write in self._writes:
            if write.topic not in final or _is_left(write, final):
                continue
            until = min((at for at in self._power if at >= write.asked_at), default=0.0)
            after = [what for at, what in later if write.answered_at < at and self._is_answered_by(at, until)]
            if after:
                detail = f"{write.topic}: record {min(write.seqs)} is lost, and a later write {after[0]} is not"
                yield self._found("V3", detail, write.answered_at)
                return

    def _is_answered_by(self, asked_at: float, until: float) -> bool:
        """Return whether what was asked at a time was answered before another one."""
        answers = [(each.asked_at, each.answered_at) for each in self._writes]
        answers += [(each.asked_at, each.answered_at) for each in self._emits]
        return any(asked == asked_at and answered <= until for asked, answered in answers)


def _own(journal: Journal, kind: str, host: str) -> list[Asked]:
    return [asked for asked in journal.of(kind) if asked.host == host]


def _write_of(asked: Asked) -> TopicWrite:
    question: dict[str, Any] = asked.question
    numbers = [each["data"]["number"] for each in question["records"]]
    seqs = dict(zip(numbers, asked.answer["seqs"], strict=True))
    topic = asked.path.rpartition("/")[2]
    return TopicWrite(topic, question["config"]["durability"], asked.asked_at, asked.answered_at, seqs)


def _is_left(write: TopicWrite, final: dict[str, dict[int, int]]) -> bool:
    listed = final.get(write.topic, {})
    return all(listed.get(seq) == number for number, seq in write.seqs.items())


def _log_epoch(listing: Asked) -> str:
    """Return the epoch of the whole log; empty if the topic does not exist."""
    epoch: str = listing.answer["epoch"]
    return epoch.partition(":")[0]


def numbers_of(listing: Asked) -> dict[int, int]:
    """Return the numbers of the records in a listing, by seq."""
    return {each["$seq"]: each["data"]["number"] for each in listing.answer["records"]}


def losable_epochs(journal: Journal, steps: Sequence[LoadStep]) -> dict[str, int]:
    """Return, by node, how many epochs its log may begin because a power loss takes what does not wait for the disk."""
    unsynced = {step.host for step in steps if step.data.get("durability", _DURABLE) != _DURABLE}
    unsynced |= {step.host for step in steps if step.kind == "queue"}  # claims do not wait for the disk
    return Counter(host for _, what, host in journal.changes if what == "power" and host in unsynced)
