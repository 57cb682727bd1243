"""Checks of WebSockets: what a client follows has no hole, and what it has published stays, once, in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.sockets import PUBLISH, PUBLISHED, SOCKET, published_record
from eventd.simulation.world.journal import LOSSES, Asked, Journal
from eventd.simulation.world.web_socket import SocketMessage

SOON_SECONDS: Final = 3.0
"""Seconds within which a client that follows a topic gets what was acknowledged."""


class SocketReference:
    """What must be true of the WebSockets of one node by what was sent over them in one run."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        self._connections = [asked for asked in own if asked.kind == SOCKET]
        self._acks = [asked for asked in own if asked.kind == PUBLISH]
        self._kept_acks = [asked for asked in self._acks if not journal.may_have_lost(asked)]
        self._losses = journal.times(host, *LOSSES)
        self._changes = [at for at, _, machine in journal.changes if machine == host]
        self._known: dict[tuple[int, int], int] = {}

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for ack in self._acks:
            if self._era(ack.asked_at) == self._era(ack.answered_at):
                yield from self._know(self._era(ack.answered_at), dict(_numbers(ack)), ack.answered_at)
        for connection in self._connections:
            yield from self._followed(connection)
            yield from self._answered_in_order(connection)
            yield from self._late(connection)
            if connection.question["looks"]:
                yield from self._kept(connection)

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
        """Each message begins where the one before it has ended; a client of another epoch gets a tombstone first."""
        place, epoch = connection.question["after"], connection.question["epoch"]
        era, present = self._era(connection.asked_at), epoch
        for message in connection.answer:
            data = message.data
            if data["op"] in ("record", "caught_up") and epoch != present:
                yield self._found("V10", f"{data['op']} of another epoch, without a tombstone", message.at)
                epoch = present
            match data["op"]:
                case "subscribed":
                    present = data["topics"][PUBLISHED]["epoch"]
                    epoch = epoch or present
                case "record":
                    seqs = [each["$seq"] for each in data["records"]]
                    if data["from_seq"] != place or seqs != list(range(place + 1, data["to_seq"] + 1)):
                        yield self._found("V14", f"seqs {seqs[:3]} to {data['to_seq']}, after {place}", message.at)
                    place = data["to_seq"]
                    yield from self._contents(era, message)
                case "tombstone":
                    if data["epoch"] == epoch:
                        yield self._found("V10", f"a tombstone without a loss: {data}", message.at)
                    place, epoch, present = data["earliest_seq"] - 1, data["epoch"], data["epoch"]
                case "caught_up" if data["head_seq"] != place:
                    yield self._found("V14", f"caught up at {data['head_seq']}, and {place} was sent", message.at)

    def _late(self, connection: Asked) -> Iterator[Violation]:
        """A client that has caught up gets what is acknowledged, unless something happens to the node."""
        ends = [message.at for message in connection.answer if message.data["op"] == "caught_up"]
        sent = [(message.at, message.data["to_seq"]) for message in connection.answer if message.data["op"] == "record"]
        for ack in self._acks if ends else ():
            since, last = max(ack.answered_at, ends[0]), ack.answer["first_seq"] + ack.answer["count"] - 1
            until = since + SOON_SECONDS
            if until > connection.answered_at or self._era(ack.asked_at) != self._era(until):
                continue
            if any(since - SOON_SECONDS <= at <= until for at in self._changes):
                continue
            reached = max((seq for at, seq in sent if at <= until), default=connection.question["after"])
            if reached < last:
                yield self._found("V14", f"seq {last} was acknowledged, and not sent", until)
                return

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
        for ack in self._kept_acks:
            lost = [number for seq, number in _numbers(ack) if sent.get(seq) != number]
            if lost and ack.answered_at < connection.asked_at:
                yield self._found("V3", f"record {lost[0]} acknowledged and lost", connection.answered_at)
                return


def _numbers(ack: Asked) -> Iterator[tuple[int, Any]]:
    """Yield the seqs of an acknowledged batch, each with the number of its record."""
    first: int = ack.question
    for at in range(ack.answer["count"]):
        yield ack.answer["first_seq"] + at, first + at
