"""Checks of WebSockets: what a client follows has no hole, and what it has published stays, once, in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.sockets import PUBLISH, SOCKET, places_of, published_record
from eventd.simulation.world.journal import LOSSES, Asked, Journal
from eventd.simulation.world.web_socket import SocketMessage


class SocketReference:
    """What must be true of the WebSockets of one node by what was sent over them in one run."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        self._connections = [asked for asked in own if asked.kind == SOCKET]
        self._acks = [asked for asked in own if asked.kind == PUBLISH]
        self._losses = journal.times(host, *LOSSES)
        self._known: dict[tuple[int, int], int] = {}
        self._last_era: int | None = None  # in which the client was last sent a place

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for ack in self._acks:
            yield from self._know(self._era(ack.answered_at), dict(_numbers(ack)), ack.answered_at)
        for connection in self._connections:
            yield from self._followed(connection)
            yield from self._answered_in_order(connection)
            if connection.question["looks"]:
                yield from self._kept(connection)
            elif any(places_of(connection.answer)):
                self._last_era = self._era(connection.asked_at)

    def _found(self, invariant: str, detail: str, at: float) -> Violation:
        return Violation(invariant, self._host, f"published: {detail}", at - self._begin)

    def _era(self, at: float) -> int:
        """Return after how many losses or new epochs a time is; between two of them a seq has one record."""
        return sum(loss <= at for loss in self._losses)

    def _know(self, era: int, numbers: dict[int, int], at: float) -> Iterator[Violation]:
        for seq, number in numbers.items():
            before = self._known.setdefault((era, seq), number)
            if before != number:
                yield self._found("V7", f"seq {seq} is record {number}, and was {before} in the same epoch", at)

    def _followed(self, connection: Asked) -> Iterator[Violation]:
        """Each message begins where the one before it has ended."""
        place = connection.question["after"]
        era = self._era(connection.asked_at)
        for message in connection.answer:
            data = message.data
            match data["op"]:
                case "record":
                    seqs = [each["$seq"] for each in data["records"]]
                    if data["from_seq"] != place or seqs != list(range(place + 1, data["to_seq"] + 1)):
                        yield self._found("V14", f"seqs {seqs[:3]} to {data['to_seq']}, after {place}", message.at)
                    place = data["to_seq"]
                    yield from self._contents(era, message)
                case "tombstone":
                    if self._last_era is None or self._last_era == era or connection.question["looks"]:
                        yield self._found("V10", f"a tombstone without a loss: {data}", message.at)
                    place = data["earliest_seq"] - 1
                case "caught_up" if data["head_seq"] != place:
                    yield self._found("V14", f"caught up at {data['head_seq']}, and {place} was sent", message.at)

    def _contents(self, era: int, message: SocketMessage) -> Iterator[Violation]:
        numbers = {each["$seq"]: each["data"]["number"] for each in message.data["records"]}
        if any(each["data"] != published_record(each["data"]["number"]) for each in message.data["records"]):
            yield self._found("V7", f"other data than was published, to seq {message.data['to_seq']}", message.at)
        if era == self._era(message.at):
            yield from self._know(era, numbers, message.at)

    def _answered_in_order(self, connection: Asked) -> Iterator[Violation]:
        """Acknowledgements come in the order of what they acknowledge, which they number so."""
        acks = [message for message in connection.answer if message.data["op"] == "ack"]
        order = [message.data["request_id"] for message in acks]
        if order != [first for first in connection.question["sent"] if first in order]:
            yield self._found("V6", f"acknowledged in the order {order[:5]}", connection.answered_at)
        new = [message.data["first_seq"] for message in acks if not message.data["deduped"]]
        if new != sorted(new):
            yield self._found("V6", f"batches of one connection have the seqs {new[:5]}", connection.answered_at)

    def _kept(self, connection: Asked) -> Iterator[Violation]:
        """The whole topic has what was acknowledged before, and each record once."""
        sent = {
            each["$seq"]: each["data"]["number"]
            for message in connection.answer
            if message.data["op"] == "record"
            for each in message.data["records"]
        }
        twice = [number for number, count in Counter(sent.values()).items() if count > 1]
        if twice:
            yield self._found("V5", f"record {twice[0]} is there twice", connection.answered_at)
        if not any(message.data["op"] == "caught_up" for message in connection.answer):
            return
        for ack in self._acks:
            lost = [number for seq, number in _numbers(ack) if sent.get(seq) != number]
            if lost and ack.answered_at < connection.asked_at:
                yield self._found("V3", f"record {lost[0]} acknowledged and lost", connection.answered_at)
                return


def _numbers(ack: Asked) -> Iterator[tuple[int, Any]]:
    """Yield the seqs of an acknowledged batch, each with the number of its record."""
    first: int = ack.question
    for at in range(ack.answer["count"]):
        yield ack.answer["first_seq"] + at, first + at
