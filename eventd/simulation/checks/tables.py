"""Checks of the tables of a node that was stopped."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from eventd.log.cursors.steps import GAP_PROTOCOL
from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.stored_rows import Row, StoredRows
from eventd.simulation.checks.violation import Violation
from eventd.simulation.world.clock import EPOCH
from eventd.simulation.world.loop import BEGIN
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.topology import GROUP, PlannedLink, Topology


class TableEvent(NamedTuple):
    """A record of the group as it is stored; `path` are the nodes that it came through."""

    position: int
    seq: int
    path: str
    event: dict[str, Any]


class GoneEvent(NamedTuple):
    """An evicted event whose id is still known, with the position of its record, and when (`at`, in microseconds, by
    the node's clock) it was evicted."""

    event_id: str
    position: int
    at: int


class StoredTables:
    """The tables of the node `host`, of which no process is left; it may have begun `epochs` epochs.

    `positions` are those of the last record of each stored event, and `gone` those of evicted ones whose id is still
    known, with the time of their eviction in `gone_at`, by the node's clock. Up to `lost_position`, an event of the
    node was evicted before all its peers had it. `may_have_holes`: topics were deleted with their records.
    """

    def __init__(
        self,
        host: str,
        stored: StoredRows,
        topology: Topology,
        at: float,
        epochs: int = 1,
        retention: SmallRetention | None = None,
        *,
        may_have_holes: bool = False,
    ) -> None:
        self._host = host
        self._epochs_begun = epochs
        self.may_have_renewed = epochs > 1
        self._topology = topology
        self._at = at
        self._damage = stored.damage()
        self._rows: dict[str, list[Row]] = {name: stored.rows(name) for name in _TABLES}
        for name in _OF_LINKS:  # callbacks and subscriptions have rows there, too
            self._rows[name] = [row for row in self._rows[name] if row["cursor"].startswith(_LINK)]
        has_queue = any('"type":"queue"' in row["config"] for row in self._rows["topics"])
        self._topics: dict[str, int] = {row["name"]: row["id"] for row in self._rows["topics"]}
        self._may_have_holes = has_queue or may_have_holes
        self._topic = self._topics[f"group:{GROUP}"]
        [self._row] = [row for row in self._rows["topics"] if row["id"] == self._topic]
        losses = [row for row in self._rows["topic_losses"] if row["topic_id"] == self._topic]
        self._losses = sorted((row["first_seq"], row["last_seq"]) for row in losses)
        self.retention = retention
        self._events = list(self._stored())
        self.positions = {event.event["id"]: event.position for event in self._events}
        gone = [each for each in self._gone_ids() if each.event_id not in self.positions]
        self.gone = {each.event_id: each.position for each in gone}
        self.gone_at = {each.event_id: each.at / 1e6 - EPOCH + BEGIN for each in gone}
        self.evicted_position: int = self._row["evicted_position"]
        self.lost_position: int = self._row["lost_position"]
        self.evicted_seq: int = self._row["evicted_seq"]
        self.head_seq: int = self._row["next_seq"] - 1

    def _stored(self) -> Iterator[TableEvent]:
        for block in (row for row in self._rows["blocks"] if row["topic_id"] == self._topic):
            paths = json.loads(block["paths"]) if block["paths"] else []
            lines = block["text"].split("\n")[: block["records"]]
            for number, line in enumerate(lines):
                path, body = (paths[0], line) if len(paths) == 1 else line.split("\t", 1)
                yield TableEvent(block["position"] + number, block["seq"] + number, path, json.loads(body))

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        if self._damage:
            yield self._found("V7", f"the database is damaged: {'; '.join(self._damage)}")
            return
        yield from self._positions()
        yield from self._evicted()
        yield from self._records()
        yield from self._epochs()
        yield from self._ranges()
        yield from self._receipts()

    def delivered(self, begin: float, end: float) -> int:
        """Return how many batches were acknowledged between two times of the loop."""
        times = [(row["acked_at"] / 1e6 - EPOCH) + BEGIN for row in self._rows["batches"] if row["status"] == 200]
        return sum(begin <= at <= end for at in times)

    def _found(self, invariant: str, detail: str) -> Violation:
        return Violation(invariant, self._host, detail, self._at)

    def _positions(self) -> Iterator[Violation]:
        """V7: the positions of all topics are 1 to the head without a hole, and so are the seqs of the group.

        Jobs that are done leave holes, and so do events that are evicted, and topics that are deleted.
        """
        [head] = self._rows["log_heads"]
        expected = 1
        for block in self._rows["blocks"]:
            if not self._may_follow(expected, block["position"]):
                yield self._found("V7", f"position {block['position']} follows {expected - 1}")
                return
            expected = block["position"] + block["records"]
        if not self._may_follow(expected, head["next_position"]):
            yield self._found("V7", f"the head is {head['next_position']}, and the last position {expected - 1}")
        seqs = [event.seq for event in self._events]
        evicted = self._row["evicted_seq"]
        if [*seqs, self._row["next_seq"]] != list(range(evicted + 1, evicted + len(seqs) + 2)):
            yield self._found("V7", f"the seqs of the group have a hole after {evicted}")
        if self._events and self._events[0].position <= self.evicted_position:
            yield self._found("V7", f"position {self._events[0].position} is stored, and evicted")

    def _may_follow(self, expected: int, position: int) -> bool:
        """Return whether a position may follow another one: what is between them is evicted, or were jobs, or
        records of a topic that was deleted."""
        is_hole = position > expected and position - 1 > self.evicted_position
        return position >= expected and (not is_hole or self._may_have_holes)

    def _evicted(self) -> Iterator[Violation]:
        """V3, V10: retention has taken what it may, and readers get a note of each event that it took."""
        evicted, head = self._row["evicted_seq"], self._row["next_seq"] - 1
        kept = self.retention
        if evicted and (kept is None or not kept.may_take(evicted, head, self._at)):
            yield self._found("V3", f"seq {evicted} is evicted, of {head}")
        covered = 0
        for first, last in self._losses:
            if first != covered + 1:
                break
            covered = last
        if covered != evicted:
            yield self._found("V10", f"the losses {self._losses} are recorded, and all to seq {evicted} evicted")

    def _records(self) -> Iterator[Violation]:
        """V5: an event has one record, and more of them only with a later expiry each."""
        expiries: dict[str, str] = {}
        for event in self._events:
            name, expires = event.event["id"], event.event["expiresAt"]
            if name in expiries and not _is_later(expires, expiries[name]):
                yield self._found("V5", f"{name} is stored twice, the second time at {event.position}")
                return
            expiries[name] = expires
        known = {row["event_id"] for row in self._rows["event_ids"] if row["topic_id"] == self._topic}
        known |= {name for name, _, _ in self._ids_in_runs("id_ranges")}
        known -= self.gone.keys()
        if known != expiries.keys():
            yield self._found("V5", f"the remembered ids differ from the stored ones: {known ^ expiries.keys()}")

    def _gone_ids(self) -> Iterator[GoneEvent]:
        for row in self._rows["event_ids"]:
            if row["topic_id"] == self._topic and row["gone_at"] is not None:
                yield GoneEvent(row["event_id"], row["position"], row["gone_at"])
        for event_id, position, span in self._ids_in_runs("gone_ids"):
            yield GoneEvent(event_id, position, span["gone_at"])

    def _ids_in_runs(self, table: str) -> Iterator[tuple[str, int, Row]]:
        """Yield the ids of runs with positions in the spans of a table, each with its position and the span's row."""
        runs = {row["id"] for row in self._rows["id_runs"] if row["topic_id"] == self._topic}
        spans = [row for row in self._rows[table] if row["topic_id"] == self._topic]
        for chunk in self._rows["id_chunks"] if spans else ():
            for line in chunk["lines"][1:-1].split("\n") if chunk["run"] in runs else ():
                event_id, _, text = line.partition(" ")
                position = int(text)
                span = next((span for span in spans if span["first"] <= position <= span["last"]), None)
                if span is not None:
                    yield event_id, position, span

    def _epochs(self) -> Iterator[Violation]:
        """V16: a new epoch has a reason, and even then events lose nothing."""
        [head] = self._rows["log_heads"]
        epochs = {head["epoch"], *(row["epoch"] for row in self._rows["batches"])}
        if len(epochs) > self._epochs_begun:
            yield self._found("V16", f"the log has {len(epochs)} epochs, and {self._epochs_begun} were begun")

    def _ranges(self) -> Iterator[Violation]:
        """V8: every record below a cursor that its link carries is in a batch that the peer has acknowledged."""
        for link in self._topology.links:
            if link.source != self._host or link.is_changed or link.protocol == "v1":
                continue
            name = f"peer:{GROUP}/{link.dest}"
            cursor = self.cursor(link.dest)
            if cursor is None:
                yield self._found("V8", f"no cursor for {link.dest}")
                continue
            batches = [row for row in self._rows["batches"] if row["cursor"] == name and row["status"] == 200]
            covered = sorted((row["after"], row["upto"]) for row in batches if not row["picked"])
            for event in self._events:
                if event.position > cursor["position"] or not self._carries(link, event):
                    continue
                if not any(after < event.position <= upto for after, upto in covered):
                    yield self._found("V8", f"position {event.position} is below the cursor of {link.dest}, and unsent")
                    break

    def changed(self, contents: EmittedContents) -> Iterator[Violation]:
        """V7: a stored event says what was emitted."""
        difference = contents.difference(event.event for event in self._events)
        if difference:
            yield self._found("V7", f"stored: {difference}")

    @cached_property
    def first_positions(self) -> dict[str, int]:
        """The position of the first record of each event of the group, by its id, without events whose first record may
        be evicted: a later record of an event has an expiry."""
        found: dict[str, int] = {}
        for event in self._events:
            if not self.evicted_seq or event.event["expiresAt"] == _NEVER:
                found.setdefault(event.event["id"], event.position)
        return found

    def position(self, topic: str, seq: int) -> int | None:
        """Return the position of a record of a topic; None if it is not stored."""
        topic_id = self._topics.get(topic)
        for block in self._rows["blocks"]:
            first: int = block["seq"]
            if block["topic_id"] == topic_id and first <= seq < first + block["records"]:
                return int(block["position"]) + seq - first
        return None

    def carried(self, link: PlannedLink) -> set[str]:
        """Return the ids of the stored events that a link from this node carries."""
        carried = (event for event in self._events if self._carries(link, event))
        return {event.event["id"] for event in carried}

    def events_of(self, source: str) -> set[str]:
        """Return the ids of the stored events of a source."""
        return {event.event["id"] for event in self._events if event.event["sourceNode"] == source}

    def ids(self) -> set[str]:
        """Return the ids of the events that are stored, or were until retention evicted them."""
        return self.positions.keys() | self.gone.keys()

    def began(self, node: str) -> int:
        """Return after which position the first batch for another node began; all positions if there is none."""
        name = f"peer:{GROUP}/{node}"
        batches = [row["after"] for row in self._rows["batches"] if row["cursor"] == name and row["status"] == 200]
        return batches[0] if batches else int(self._row["evicted_position"])

    def all_gaps(self) -> list[tuple[str, int, int, str]]:
        """Return the gaps of all senders: node, position after which each begins, its last position, and reason."""
        return [(row["node"], row["after"], row["upto"], row["reason"]) for row in self._rows["inbound_gaps"]]

    def gaps(self, node: str) -> list[tuple[int, int]]:
        """Return the gaps of a sender: the position after which each begins, and its last one."""
        return [(after, upto) for sender, after, upto, _ in self.all_gaps() if sender == node]

    def reported_losses(self, node: str) -> list[tuple[int, int]]:
        """Return the losses that the node has in its ledger for a peer: the position after which each begins, and its
        last one."""
        name = f"peer:{GROUP}/{node}"
        rows = (row for row in self._rows["batches"] if row["cursor"] == name and row["protocol"] == GAP_PROTOCOL)
        return [(row["after"], row["upto"]) for row in rows]

    def _carries(self, link: PlannedLink, event: TableEvent) -> bool:
        source = event.event.get("sourceNode", "")
        is_meant = link.takes(event.event["type"]) and (link.relay or source == self._host)
        return is_meant and source != link.dest and link.dest not in event.path

    def _receipts(self) -> Iterator[Violation]:
        """V9: a receipt is of its batch, and accounts for every event of it."""
        for row in self.settled_batches():
            receipt = json.loads(json.loads(row["receipt"])["body"])
            counted = receipt["accepted"] + receipt["duplicates"]
            refused = sorted(refusal["position"] for refusal in receipt["refused"])
            own = row["batch_id"], self._host, row["events"], _refused_in(row)
            if (receipt["batch"], receipt["from"], counted, refused) != own:
                yield self._found("V9", f"the receipt of {row['batch_id']}, {row['events']} events, is {receipt}")
                return

    def settled_batches(self) -> list[Row]:
        """Return the batches for which the node has a receipt."""
        return [row for row in self._rows["batches"] if row["status"] == 200 and row["receipt"]]

    def letters(self) -> list[Row]:
        """Return the dead letters of the node's peers."""
        return self._rows["dead_letters"]

    def received_batches(self, node: str) -> dict[str, str]:
        """Return the ids of the batches that the node has stored of another one, each with its receipt."""
        return {row["batch_id"]: row["receipt"] for row in self._rows["inbound_batches"] if row["node"] == node}

    def mark(self, node: str) -> Row | None:
        """Return the node's mark of the link from another one."""
        return next((row for row in self._rows["inbound_links"] if row["node"] == node), None)

    def cursor(self, node: str) -> Row | None:
        """Return the node's cursor of the link to another one."""
        name = f"peer:{GROUP}/{node}"
        return next((row for row in self._rows["cursors"] if row["name"] == name), None)


def differences(
    tables: Mapping[str, StoredTables], topology: Topology, at: float, restored: Collection[str] = ()
) -> Iterator[Violation]:
    """Yield where the tables of the two nodes of a link contradict each other; `restored`: nodes that were restored."""
    for link in topology.links:
        sender, receiver = tables[link.source], tables[link.dest]
        missing = sender.carried(link) - receiver.ids()
        if missing:
            detail = f"{min(missing)} and {len(missing) - 1} more are stored at {link.source}, and missing"
            yield Violation("V4", link.dest, detail, at)
        kept = receiver.events_of(link.source) - sender.ids() if link.source in restored else set()
        if kept:
            detail = (
                f"{link.dest} holds {min(kept)} and {len(kept) - 1} more of {link.source}, which did not get them back"
            )
            yield Violation("V38", link.source, detail, at)
        stored = receiver.received_batches(link.source)
        for row in sender.settled_batches() if link.dest not in restored else ():
            if row["cursor"] == f"peer:{GROUP}/{link.dest}" and row["batch_id"] not in stored:
                detail = f"{link.source} has a receipt for {row['batch_id']}, which is not stored"
                yield Violation("V9", link.dest, detail, at)
                break
        mark, cursor = receiver.mark(link.source), sender.cursor(link.dest)
        if mark is None or cursor is None or mark["epoch"] != cursor["sent_epoch"]:
            continue
        if mark["upto"] < cursor["sent_upto"]:
            detail = f"the mark is {mark['upto']}, and {link.source} knows of {cursor['sent_upto']}"
            yield Violation("V8", link.dest, detail, at)


_TABLES = (
    "log_heads",
    "topics",
    "topic_losses",
    "blocks",
    "event_ids",
    "gone_ids",
    "id_chunks",
    "id_ranges",
    "id_runs",
    "cursors",
    "batches",
    "inbound_links",
    "inbound_batches",
    "inbound_gaps",
    "dead_letters",
)
_OF_LINKS = ("batches", "dead_letters")
_LINK = "peer:"
_NEVER = "0001-01-01T00:00:00Z"


def _refused_in(batch: Row) -> list[int]:
    """Return the positions that a batch has as refused."""
    exceptions = json.loads(batch["exceptions"]) if batch["exceptions"] else []
    return sorted(position for position, reason in exceptions if reason == "refused")


def _is_later(expires: str, before: str) -> bool:
    """Return whether an expiry is later than another one; the zero time means never."""
    return before != _NEVER and (expires == _NEVER or expires > before)
