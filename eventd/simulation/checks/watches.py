"""Checks of watches: a reader gets every record above its start, in order, and learns of each loss."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.group_seqs import GroupSeqs
from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.watches import (
    GROUP_TOPIC,
    LOOKING,
    SESSION,
    WATCH,
    WATCHED,
    WRITERS,
    epochs_at_start,
    numbered_places,
    places_of,
    watched_record,
)
from eventd.simulation.world.event_stream import SentEvent
from eventd.simulation.world.journal import LOSSES, Asked, Journal

SOON_SECONDS: Final = 5.0
"""Seconds within which a reader that reads gets what was acknowledged."""
_OK: Final = 200
_NOT_FOUND: Final = 404
_BUSY: Final = 503


class WatchSession:
    """A session by its answers: which `starts` its next stream may have in each topic, and the `ids` that it has sent.

    `epochs` are those that the reader's places may be of: of the start of a stream, until the node has reported another
    one. `owing` are the topics whose next event must do so: the reader's place is of an epoch that has ended.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.without = asked.question.get("node", "")
        self.starts = {name: {each["from_seq"]} for name, each in asked.answer["topics"].items()}
        self.ids: set[str] = set()
        named = epochs_at_start(asked)
        self.epochs = {name: {epoch} for name, epoch in named.items()}
        self.owing = set[str]()
        self._present = {name: each["epoch"] for name, each in asked.answer["topics"].items()}
        self._start_epochs = {name: {epoch} for name, epoch in named.items()}
        self._numbers = {name: {0: epoch} for name, epoch in named.items()}
        self._reached = {name: {epoch: 0} for name, epoch in named.items()}

    def begin_stream(self, stream: Asked) -> None:
        """Change the starts as a stream does; one that was not answered may have been begun or not."""
        last_id = stream.question["last_id"]
        is_certain = last_id in self.ids and stream.status == _OK
        for name, (number, seq) in numbered_places(last_id).items():
            epoch = self._numbers[name][number]
            # With an id beyond what was sent, the node may not follow it.
            starts = {seq} if last_id in self.ids else set(range(self._reached[name][epoch], seq))
            self.starts[name] = starts if is_certain else self.starts[name] | starts
            self._start_epochs[name] = {epoch} if is_certain else self._start_epochs[name] | {epoch}
        self.epochs = {name: set(epochs) for name, epochs in self._start_epochs.items()}
        self.owing = {name for name, epochs in self.epochs.items() if self._present[name] not in epochs}

    def keep(self, event_id: str) -> Iterator[str]:
        """Note an id that has arrived, and how far it leads; yield the topics whose epoch it numbers wrongly."""
        self.ids.add(event_id)
        for name, (number, seq) in numbered_places(event_id).items():
            epoch = self._numbers[name].setdefault(number, min(self.epochs[name]))
            if epoch not in self.epochs[name]:
                yield name
            self._reached[name][epoch] = max(self._reached[name].get(epoch, 0), seq)

    def change_epoch(self, topic: str, epoch: str, seq: int) -> None:
        """Continue in another epoch after a seq: what was sent before is of the one before, unless it is the same."""
        self.epochs[topic] = {epoch}
        self.owing.discard(topic)
        self._present[topic] = epoch
        self._reached[topic].setdefault(epoch, seq)


class WatchReference:
    """What must be true of the streams that the readers at one node were sent."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        self._contents = EmittedContents(journal)
        own = [asked for asked in journal.asked if asked.host == host]
        self._streams = [asked for asked in own if asked.kind == WATCH]
        self._sessions = {asked.answer["wid"]: WatchSession(asked) for asked in own if _is_session(asked)}
        self._writes = [asked for asked in own if asked.kind == "watched write" and asked.is_good]
        self._kept_writes = [asked for asked in self._writes if not journal.may_have_lost(asked)]
        self._starts = journal.times(host, "start")
        self._restored = [each.restored_at for each in journal.restores if each.host == host]
        self._losses = journal.times(host, *LOSSES)
        self._retention = journal.retentions.get(host)
        self._seqs = GroupSeqs(journal, host, self._contents.emitted_at, begin)
        self._changes = [at for at, _, machine in journal.changes if machine == host]
        self._known: dict[tuple[int, str, int], Any] = {}  # what a seq of an era has: a number or the id of an event
        self._passed: list[tuple[int, range, WatchSession, float]] = []  # what was left out for a reader

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for write in self._writes:
            numbers = [each["data"]["number"] for each in write.question["records"]]
            for seq, number in zip(write.answer["seqs"], numbers, strict=True):
                yield from self._know(self._era(write), WATCHED, seq, number, write.answered_at)
        for stream in self._streams:
            session = self._sessions[stream.question["wid"]]
            yield from self._known_session(stream, session)
            session.begin_stream(stream)
            yield from _StreamReading(self, stream, session).violations()
            yield from self._late(stream)
            if stream.question["lane"] == LOOKING:
                yield from self._kept(stream)
        yield from self._left_out()
        yield from self._renewed()

    def _renewed(self) -> Iterator[Violation]:
        """V16: the epoch of a topic changes by a loss, and once for each restore, when the node finds out later."""
        unasked = 0
        for before, later in itertools.pairwise(session.asked for session in self._sessions.values()):
            topics = before.answer["topics"].keys() & later.answer["topics"].keys()
            is_lost = any(before.asked_at <= at <= later.answered_at for at in self._losses)
            answers = before.answer["topics"], later.answer["topics"]
            if is_lost or all(answers[0][name]["epoch"] == answers[1][name]["epoch"] for name in topics):
                continue
            unasked += 1
            if unasked > sum(at <= later.answered_at for at in self._restored):
                yield self.found("a new epoch without a loss", later.answered_at, "V16")
                return

    def _known_session(self, stream: Asked, session: WatchSession) -> Iterator[Violation]:
        """A session ends with the process of the node: another one does not know it."""
        is_ended = any(session.asked.answered_at < at < stream.asked_at for at in self._starts)
        if is_ended and stream.status not in (0, _NOT_FOUND, _BUSY):
            yield self.found(f"a session of an earlier process was answered with {stream.status}", stream.answered_at)

    def found(self, detail: str, at: float, invariant: str = "V14") -> Violation:
        """Return a violation at a time of the loop."""
        return Violation(invariant, self._host, detail, at - self._begin)

    def era_at(self, at: float) -> int:
        """Return after how many losses or new epochs a time is; between two of them a seq has one record."""
        return sum(loss <= at for loss in self._losses)

    def may_be_evicted(self, stream: Asked, tombstone: SentEvent) -> bool:
        """Return whether retention may have taken what a tombstone on a stream names."""
        data = tombstone.data
        if data["topic"] != GROUP_TOPIC or self._retention is None:
            return False
        age = tombstone.at - self._seqs.emitted_after(data["gap_to"], stream.asked_at)
        return self._retention.may_take(data["gap_to"], data["head_seq"], age)

    def _era(self, asked: Asked) -> int:
        """Return the era of an answer; -1 if it is not certain."""
        begun, ended = self.era_at(asked.asked_at), self.era_at(asked.answered_at)
        return begun if begun == ended else -1

    def _know(self, era: int, topic: str, seq: int, content: Any, at: float) -> Iterator[Violation]:
        before = self._known.setdefault((era, topic, seq), content)
        if era >= 0 and before != content:
            yield self.found(f"{topic}: seq {seq} is {content}, and was {before} in the same epoch", at, "V7")

    def take(self, stream: Asked, event: SentEvent) -> Iterator[Violation]:
        """Yield what is wrong with the contents of records that were sent."""
        topic = event.data["topic"]
        era = self.era_at(stream.asked_at)
        era = era if era == self.era_at(event.at) else -1
        if topic == GROUP_TOPIC and (difference := self._contents.payload_difference(event.data["records"])):
            yield self.found(f"{topic}: {difference}", event.at, "V7")
        for each in event.data["records"]:
            content = each["meta"]["id"] if topic == GROUP_TOPIC else each["data"]["number"]
            if topic == WATCHED and each["data"] != watched_record(content)["data"]:
                yield self.found(f"{topic}: seq {each['$seq']} has other data than was written", event.at, "V7")
            yield from self._know(era, topic, each["$seq"], content, event.at)

    def leave_out(self, stream: Asked, seqs: range, session: WatchSession, at: float) -> None:
        """Note seqs that a reader was not sent: they must be of the writer that it leaves out."""
        self._passed.append((self.era_at(stream.asked_at), seqs, session, at))

    def _left_out(self) -> Iterator[Violation]:
        for era, seqs, session, at in self._passed:
            for seq in seqs:
                number = self._known.get((era, WATCHED, seq))
                if number is not None and f"writer-{number % WRITERS}" != session.without:
                    yield self.found(f"{WATCHED}: seq {seq} is record {number}, and was not sent", at)
                    return

    def _kept(self, stream: Asked) -> Iterator[Violation]:
        """V3, V5: the whole topic of large records has what was acknowledged before, and each record once."""
        shown = [event for event in stream.answer[1] if event.kind in ("record", "caught-up")]
        events = [event for event in shown if event.data["topic"] == WATCHED]
        records = [each for event in events if event.kind == "record" for each in event.data["records"]]
        sent = {each["$seq"]: each["data"]["number"] for each in records}
        twice = [number for number, count in Counter(sent.values()).items() if count > 1]
        if twice:
            yield self.found(f"{WATCHED}: record {twice[0]} is there twice", stream.answered_at, "V5")
        if not any(event.kind == "caught-up" for event in events):
            return
        for write in self._kept_writes:
            numbers = [each["data"]["number"] for each in write.question["records"]]
            kept = zip(write.answer["seqs"], numbers, strict=True)
            lost = [number for seq, number in kept if sent.get(seq) != number]
            if lost and write.answered_at < stream.asked_at:
                yield self.found(f"{WATCHED}: record {lost[0]} acknowledged and lost", stream.answered_at, "V3")
                return

    def _late(self, stream: Asked) -> Iterator[Violation]:
        """A stream has what was acknowledged, as soon as it can, unless something happens to the node."""
        if stream.question["pause"] or stream.status != _OK:
            return
        events = [event for event in stream.answer[1] if event.id]
        ends = [event.at for event in events if event.kind == "caught-up" and event.data["topic"] == WATCHED]
        if not ends:
            return
        reached = [(event.at, places_of(event.id)[WATCHED]) for event in events]
        for write in self._writes:
            since = max(write.answered_at, ends[0])
            until = since + SOON_SECONDS
            if until > stream.answered_at or self._era(write) != self.era_at(until):
                continue
            if any(write.asked_at - SOON_SECONDS <= at <= until for at in self._changes):
                continue
            if max((seq for at, seq in reached if at <= until), default=0) < write.answer["last_seq"]:
                detail = f"{WATCHED}: seq {write.answer['last_seq']} was acknowledged, and not sent"
                yield self.found(detail, until)
                return


class _StreamReading:
    """Follows one stream: each of its events begins where the one before it has ended."""

    def __init__(self, reference: WatchReference, stream: Asked, session: WatchSession) -> None:
        self._reference = reference
        self._stream = stream
        self._session = session
        self._places = {name: set(seqs) for name, seqs in session.starts.items()}

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for event in self._stream.answer[1]:
            if event.kind in ("record", "caught-up"):
                yield from self._owed(event)
            match event.kind:
                case "record":
                    yield from self._record(event)
                case "tombstone":
                    yield from self._tombstone(event)
                case "caught-up":
                    yield from self._advance(event, event.data["head_seq"], ())
                case "topic-deleted":
                    yield self._reference.found(f"{event.data['topic']} was not deleted", event.at)
            if event.id and event.kind != "error":
                yield from self._keep(event)

    def _record(self, event: SentEvent) -> Iterator[Violation]:
        data = event.data
        topic = data["topic"]
        self._pass_over(event, topic, data["from_seq"])
        if data["from_seq"] not in self._places[topic]:
            detail = f"{topic}: records after {data['from_seq']}, and not after {_some(self._places[topic])}"
            yield self._reference.found(detail, event.at)
        self._places[topic] = {data["from_seq"]}
        yield from self._advance(event, data["to_seq"], [each["$seq"] for each in data["records"]])
        yield from self._reference.take(self._stream, event)

    def _pass_over(self, event: SentEvent, topic: str, seq: int) -> None:
        """Note that the node has passed over records that are left out for the reader, without an event."""
        before = max(self._places[topic])
        if self._session.without and topic == WATCHED and seq > before:
            self._reference.leave_out(self._stream, range(before + 1, seq + 1), self._session, event.at)
            self._places[topic] = {seq}

    def _advance(self, event: SentEvent, upto: int, seqs: Any) -> Iterator[Violation]:
        """Continue to a seq with these records: whatever else is before it must be left out for the reader."""
        topic, places = event.data["topic"], self._places[event.data["topic"]]
        self._places[topic] = {upto}
        if upto in places and not seqs:
            return
        between = range(min(max(places), upto) + 1 if not seqs else min(places) + 1, upto + 1)
        missing = [seq for seq in between if seq not in set(seqs)]
        if list(seqs) != sorted(set(seqs)) or not set(seqs) <= set(between):
            yield self._reference.found(f"{topic}: seqs {list(seqs)[:5]} to {upto}, after {_some(places)}", event.at)
        if not missing:
            return
        if not self._session.without or topic != WATCHED:
            detail = f"{topic}: seq {missing[0]} is missing after {_some(places)}, to {upto}"
            yield self._reference.found(detail, event.at)
        for seq in missing:
            self._reference.leave_out(self._stream, range(seq, seq + 1), self._session, event.at)

    def _owed(self, event: SentEvent) -> Iterator[Violation]:
        """A reader of another epoch gets a tombstone before anything else."""
        topic = event.data["topic"]
        if topic in self._session.owing:
            detail = f"{topic}: {event.kind} of another epoch than the reader's, without a tombstone"
            yield self._reference.found(detail, event.at, "V10")
            self._session.owing.discard(topic)

    def _tombstone(self, event: SentEvent) -> Iterator[Violation]:
        """A tombstone says that the reader's place is of another epoch than the topic, or that retention passed it."""
        topic, epoch = event.data["topic"], event.data["epoch"]
        may_be_evicted = self._reference.may_be_evicted(self._stream, event)
        is_evicted = may_be_evicted and event.data["gap_from"] - 1 in self._places[topic]
        if self._session.epochs[topic] == {epoch} and not is_evicted:
            yield self._reference.found(f"a tombstone without a loss: {event.data}", event.at, "V10")
        self._session.change_epoch(topic, epoch, event.data["earliest_seq"] - 1)
        self._places[topic] = {event.data["earliest_seq"] - 1}

    def _keep(self, event: SentEvent) -> Iterator[Violation]:
        """The id of an event never names a place that was not sent."""
        seqs = places_of(event.id)
        for name, seq in seqs.items():
            self._pass_over(event, name, seq)
            if seq not in self._places[name]:
                detail = f"{name}: the id names seq {seq}, and {_some(self._places[name])} was sent"
                yield self._reference.found(detail, event.at)
        for name in self._session.keep(event.id):
            yield self._reference.found(f"{name}: the id numbers its epoch as another one: {event.id}", event.at)


def _is_session(asked: Asked) -> bool:
    return asked.kind == SESSION and asked.is_good


def _some(places: set[int]) -> str:
    return str(min(places)) if len(places) == 1 else f"{min(places)} to {max(places)}"
