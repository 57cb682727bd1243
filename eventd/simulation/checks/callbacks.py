"""Checks of callbacks: each event is accepted by the receiver, in order, or is a dead letter that it has refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.callbacks import (
    CALLBACK_LETTERS,
    MATCHED,
    MESSAGE,
    REFUSALS,
    REFUSING,
    events_in,
    ids_of,
)
from eventd.simulation.world.journal import Journal

_ID: Final = "webhook-id"
_GAP: Final = "gap_"
_NOT_FOUND: Final = 404


class CallbackReference:
    """What must be true of the callback of one node by the messages that its receiver got in one run."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        declared = [asked for asked in own if asked.kind == "callback"]
        self._asked_at = declared[-1].answered_at if declared else None
        kept = [asked for asked in declared if asked.is_good and not journal.may_have_lost(asked)]
        self._declared_at = kept[0].answered_at if kept else None
        self._restored_at = max((each.restored_at for each in journal.restores if each.host == host), default=0.0)
        self._unknown = [asked for asked in own if asked.kind == CALLBACK_LETTERS and asked.status == _NOT_FOUND]
        self._messages = [asked for asked in own if asked.kind == MESSAGE]
        self._letters = [asked for asked in own if asked.kind == CALLBACK_LETTERS and asked.is_good]
        self._lists = [asked for asked in own if asked.kind == "listing"]
        self._is_evicting = host in journal.retentions
        emits = [each for asked in journal.of("emit") for each in asked.question["events"]]
        self._contents = EmittedContents(journal)
        self._refreshed = {each["id"] for each in emits if "expiresAt" in each}
        self._is_ordered = '"inFlight":1' in str(next((a.question for a in own if a.kind == "callback"), ""))

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        yield from self._repeated()
        yield from self._changed()
        if self._asked_at is not None and self._declared_at is None:
            yield self._found("the callback was not taken", self._asked_at)
        for asked in self._unknown:
            if self._declared_at is not None and asked.asked_at > self._declared_at:
                yield self._found("the callback was declared, and is lost", asked.answered_at, "V3")
                break
        if self._declared_at is not None and self._letters and self._lists:
            yield from self._settled()
            if self._is_ordered:
                yield from self._order()

    def _found(self, detail: str, at: float, invariant: str = "V11") -> Violation:
        return Violation(invariant, self._host, detail, at - self._begin)

    def _repeated(self) -> Iterator[Violation]:
        """A message that is sent again has the same id and the same bytes; nothing was lost."""
        bodies: dict[str, bytes] = {}
        names: dict[str, str] = {}
        for asked in self._messages:
            message = asked.question
            if bodies.setdefault(message.headers[_ID], message.body) != message.body:
                yield self._found(f"message {message.headers[_ID]} was sent with other bytes", message.at)
            ids = ids_of(message)
            if ids[0].startswith(_GAP) and not self._is_evicting:
                yield self._found(f"a gap without a loss: {message.body!r}", message.at)
            if len(ids) == 1 and ids[0] not in self._refreshed and not message.body.startswith(b"["):
                before = names.setdefault(ids[0], message.headers[_ID])
                if before != message.headers[_ID]:
                    yield self._found(f"{ids[0]} was sent as {before} and {message.headers[_ID]}", message.at)

    def _changed(self) -> Iterator[Violation]:
        """V7: a message says what was emitted."""
        for asked in self._messages:
            events = [each for each in events_in(asked.question) if not each["id"].startswith(_GAP)]
            difference = self._contents.difference(each | {"payload": each["data"]} for each in events)
            if difference:
                yield self._found(f"a message: {difference}", asked.question.at, "V7")
                return

    def _settled(self) -> Iterator[Violation]:
        """At rest each event is accepted, or is a dead letter that was refused as often as must be."""
        accepted = {name for asked in self._messages if asked.is_good for name in ids_of(asked.question)}
        letters = {each["eventId"] for each in self._letters[-1].answer["deadLetters"]}
        matching = [each["id"] for each in self._lists[-1].answer if each["type"].startswith(MATCHED)]
        at = self._letters[-1].answered_at
        missing = [name for name in matching if name not in accepted and name not in letters]
        if missing:
            yield self._found(f"{missing[0]} was neither accepted nor given up", at)
        for name in sorted(letters):
            refusals = sum(name in ids_of(asked.question) for asked in self._messages if asked.status in REFUSING)
            if refusals < REFUSALS:
                yield self._found(f"{name} was given up after {refusals} refusals", at)
                return

    def _order(self) -> Iterator[Violation]:
        """An event is accepted before a later one, unless it was refused, so that the later one is a proof.

        A restore takes events, which may come back at other places: only the messages since then are in their order.
        """
        events = self._lists[-1].answer
        places = {each["id"]: at for at, each in enumerate(events)}
        matching = [each["id"] for each in events if each["type"].startswith(MATCHED)]
        waiting = [name for name in matching if name not in self._refreshed]
        refused: set[str] = set()
        done: set[str] = set()
        at = 0
        for asked in self._messages:
            ids = ids_of(asked.question)
            if asked.status in REFUSING:
                refused.update(ids)
            if not asked.is_good:
                continue
            done.update(ids)
            while at < len(waiting) and (waiting[at] in done or waiting[at] in refused):
                at += 1
            if asked.question.at <= self._restored_at:
                continue
            early = [name for name in ids if at < len(waiting) and places.get(name, 0) > places[waiting[at]]]
            if early and early[0] not in self._refreshed:
                yield self._found(f"{early[0]} was accepted before {waiting[at]}", asked.question.at)
                return
