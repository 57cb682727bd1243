"""Checks of a topic that is created again: a watch session never continues in another one without a tombstone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.renewals import DELETION, RENEWAL, RENEWED_STREAM
from eventd.simulation.world.event_stream import SentEvent
from eventd.simulation.world.journal import LOSSES, Asked, Journal

_OK: Final = 200


class RenewedPlace(NamedTuple):
    """What a client has read: the number of the topic, None as long as no record is certain to name it, and a seq."""

    number: int | None
    seq: int


_BEGIN: Final = RenewedPlace(None, 0)


class RenewalReference:
    """What must be true of the streams of one node."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        self._streams = [asked for asked in own if asked.kind == RENEWED_STREAM]
        writes = [asked for asked in own if asked.kind == RENEWAL]
        self._written = [(each.answered_at, _number_of(each)) for each in writes if each.is_good]
        self._uncertain = {_number_of(each) for each in writes if not each.is_good}
        """Numbers of writes without an answer: their records may come late, and into the next topic."""
        self._first_written: dict[int, float] = {}
        for each in writes:
            at = self._first_written.get(_number_of(each), each.asked_at)
            self._first_written[_number_of(each)] = min(at, each.asked_at)
        self._deletions = [asked for asked in own if asked.kind == DELETION]
        self._losses = journal.times(host, *LOSSES)
        self._ids: dict[tuple[str, str], RenewedPlace] = {}
        self._starts: dict[str, set[RenewedPlace]] = {}
        self._begun: dict[str, float] = {}

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for stream in self._streams:
            wid = stream.question["wid"]
            starts = self._starts.setdefault(wid, {_BEGIN})
            place = self._ids.get((wid, stream.question["last_id"]))
            if place is not None:  # without an answer, the stream may have begun or not
                starts = {place} if stream.status == _OK else starts | {place}
                self._starts[wid] = starts
            for detail, at in self._read(stream, starts):
                yield Violation("V14", self._host, f"renewed: {detail}", at - self._begin)

    def _read(self, stream: Asked, places: set[RenewedPlace]) -> Iterator[tuple[str, float]]:
        """Follow one stream from one of these places; yield what is wrong, and when."""
        begun = self._begun.setdefault(stream.question["wid"], stream.asked_at)
        # Before the session, a restore may have taken back what was written.
        newest = max((number for at, number in self._written if begun < at < stream.asked_at), default=0)
        for event in stream.answer:
            match event.kind:
                case "tombstone":
                    if event.data["reason"] != "recreated":
                        yield f"a tombstone of a loss: {event.data}", event.at
                    if not any(self._may_have_ended(place, event.at) for place in places):
                        yield f"a tombstone after {_some(places)}, which was not deleted", event.at
                    places = {RenewedPlace(None, event.data["earliest_seq"] - 1)}
                case "record":
                    place, details = self._advance(event, places)
                    for detail in details:
                        yield detail, event.at
                    places = {place}
                case "caught-up":
                    if all(place.seq != event.data["head_seq"] for place in places):
                        yield f"the end is {event.data['head_seq']}, and {_some(places)} was sent", event.at
                case _:
                    continue
            if all(place.number is not None and place.number < newest for place in places):
                yield f"{event.kind} after {_some(places)}, though topic {newest} was written", event.at
                return
            if len(places) == 1:
                yield from self._keep(stream, event, *places)

    def _may_have_ended(self, place: RenewedPlace, at: float) -> bool:
        """Return whether the topic of a place may have been deleted, or its epoch have ended, before a time.

        A deletion without a good answer may come late, and so may the new epoch after a loss.
        """
        if place.number is None:
            return True
        begun = self._first_written[place.number]
        deletions = [each for each in self._deletions if each.asked_at <= at]
        is_deleted = any(not each.is_good or each.answered_at > begun for each in deletions)
        return is_deleted or any(loss <= at for loss in self._losses)

    def _advance(self, event: SentEvent, places: set[RenewedPlace]) -> tuple[RenewedPlace, list[str]]:
        """Return the place after an event with records, and what is wrong with them."""
        records = event.data["records"]
        seqs = [each["$seq"] for each in records]
        numbers = {each["data"]["topic"] for each in records} - self._uncertain
        number = max(numbers, default=None)
        before = [
            place
            for place in places
            if place.seq + 1 == seqs[0] and (place.number is None or number is None or place.number == number)
        ]
        is_right = before and len(numbers) <= 1 and seqs == [*range(seqs[0], seqs[-1] + 1)]
        details = [] if is_right else [f"seqs {seqs[:5]} of topic {number} after {_some(places)}"]
        known = before[0].number if len(before) == 1 else None
        return RenewedPlace(known if number is None else number, seqs[-1]), details

    def _keep(self, stream: Asked, event: SentEvent, place: RenewedPlace) -> Iterator[tuple[str, float]]:
        """Note where an id leads; it must not lead to two places."""
        key = stream.question["wid"], event.id
        known = self._ids.setdefault(key, place)
        if known.number is None:
            self._ids[key] = place
        elif place.number is not None and known != place:
            yield f"one id stands for {known} and {place}", event.at


def _number_of(write: Asked) -> int:
    number: int = write.question["records"][0]["data"]["topic"]
    return number


def _some(places: set[RenewedPlace]) -> str:
    return " or ".join(f"{place.seq} of topic {place.number}" for place in places)
