"""Checks of readers that follow topics: they miss nothing, and get nothing that they did not ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.group_seqs import GroupSeqs
from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.follows import FOLLOW
from eventd.simulation.load.watches import GROUP_TOPIC
from eventd.simulation.world.journal import Asked, Journal

SOON_SECONDS: Final = 1.0
"""Seconds within which a waiting reader gets what was acknowledged."""


class FollowReference:
    """What must be true of the pages that the readers at one node were given."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        self._contents = EmittedContents(journal)
        self._pages = [asked for asked in journal.of(FOLLOW) if asked.host == host and asked.is_good]
        self._writes = [asked for asked in journal.of("write") if asked.host == host and asked.is_good]
        self._retention = journal.retentions.get(host)
        self._seqs = GroupSeqs(journal, host, self._contents.emitted_at, begin)
        self._ends = [at for at, what, machine in journal.changes if machine == host and what != "ready"]

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        known: dict[tuple[str, str, int], Any] = {}
        for page in self._pages:
            yield from self._missed(page)
            yield from self._late(page)
            is_of_group = page.answer["topic"].startswith("group:")
            if is_of_group and (difference := self._contents.payload_difference(page.answer["records"])):
                yield self._found("V7", page, difference)
            for each in page.answer["records"]:
                content = each["meta"]["id"] if is_of_group else each["data"]
                before = known.setdefault((page.path, page.answer["epoch"], each["$seq"]), content)
                if before != content:
                    yield self._found("V7", page, f"seq {each['$seq']} was {before}, and is {content}")

    def _found(self, invariant: str, page: Asked, detail: str) -> Violation:
        return Violation(invariant, self._host, f"{page.answer['topic']}: {detail}", page.answered_at - self._begin)

    def _missed(self, page: Asked) -> Iterator[Violation]:
        """V10, V14: a page has every seq from the reader's on; one of another epoch says so, and begins at 1."""
        question, answer = page.question, page.answer
        tombstone, after = answer["tombstone"], question["from_seq"]
        seqs = [each["$seq"] for each in answer["records"]]
        evicts = answer["topic"] == GROUP_TOPIC and self._retention is not None
        if question.get("epoch", answer["epoch"]) != answer["epoch"]:
            if tombstone is None or tombstone["reason"] != "recreated":
                yield self._found("V10", page, f"another epoch, and the tombstone is {tombstone}")
            after = tombstone["earliest_seq"] - 1 if evicts and tombstone else 0
        elif tombstone is not None:
            if evicts and tombstone["gap_from"] == after + 1 and self._may_be_evicted(page, tombstone["gap_to"]):
                after = tombstone["gap_to"]
            else:
                yield self._found("V10", page, f"a tombstone without a loss: {tombstone}")
        elif evicts and "epoch" not in question:  # a new reader begins with what is stored
            after = seqs[0] - 1 if seqs else answer["next_from_seq"]
        if seqs != list(range(after + 1, answer["next_from_seq"] + 1)):
            yield self._found("V14", page, f"after {after}, seqs {seqs[:5]}, to {answer['next_from_seq']}")

    def _may_be_evicted(self, page: Asked, seq: int) -> bool:
        age = page.answered_at - self._seqs.emitted_after(seq, page.asked_at)
        return self._retention is not None and self._retention.may_take(seq, page.answer["head_seq"], age)

    def _late(self, page: Asked) -> Iterator[Violation]:
        """V14: a page that has nothing new was not preceded by an acknowledged write that is new."""
        answer = page.answer
        if answer["records"] or any(page.asked_at - SOON_SECONDS <= end <= page.answered_at for end in self._ends):
            return
        until = max(page.asked_at, page.answered_at - SOON_SECONDS)
        for write in self._writes:
            same = write.answer["topic"] == answer["topic"] and self._is_same_life(write, page)
            if same and write.answered_at < until and write.answer["last_seq"] > answer["next_from_seq"]:
                yield self._found("V14", page, f"nothing new, and seq {write.answer['last_seq']} was acknowledged")
                return

    def _is_same_life(self, write: Asked, page: Asked) -> bool:
        return not any(write.asked_at <= end <= page.answered_at for end in self._ends)
