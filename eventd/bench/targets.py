"""The targets of load: a group of a node, or a topic. How a batch is written there, and how everything is read back."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec

from eventd.bench.wire import NodeClient
from eventd.client import NewEvent
from eventd.errors import Invalid
from federation.event import Event, encode, from_micros, normalise

PAGE = 1000


class StoredEvent(NamedTuple):
    """An event or record read back: the number it was sent under, or a text for an unknown one, and its digest."""

    number: int | str
    digest: bytes

    def __str__(self) -> str:
        return f"{self.number} ({self.digest.hex()[:8]})"


class GroupTarget:
    """The events of a group, of `types` types in turn.

    `named`: their ids contain their numbers; otherwise the client library chooses the ids.
    """

    def __init__(
        self, group: str, source: str, run: str, size: int, time: int, *, types: int = 1, named: bool = True
    ) -> None:
        self.group = group
        self._named = named
        self.path = f"/api/v1/groups/{group}/events"
        self.publish_path = f"/api/v1/groups/{group}/publish"
        self.types = [f"bench.client.t{number:03}" for number in range(types)]
        self._prefix = f"bench-{run}-"
        self._width = 29 - len(run)
        self._time = from_micros(time).isoformat().replace("+00:00", "Z")
        bare = len(encode(normalise(self._event(source, time), now=time)))
        if size < bare:
            raise Invalid(f"--size {size}: an event of this measurement has at least {bare} bytes")
        self._pad = "x" * (size - bare)
        text = msgspec.json.encode(self._body("@id@", "@number@", "@subject@")).decode().replace("%", "%%")
        text = text.replace("@id@", f"%0{self._width}d").replace("@subject@", "%d.%d")
        text = text.replace(self.types[0], "%s")
        self._template = text.replace("@number@", "%010d")

    def _event(self, source: str, time: int) -> Event:
        body = self._body("0" * self._width, "0" * 10, "100.100")
        return Event(
            id=body["id"],
            group=self.group,
            source_node=source,
            type=body["type"],
            subject=body["subject"],
            payload=body["payload"] | {"pad": ""},
            observed_at=from_micros(time),
        )

    def _body(self, number: str, again: str, subject: str) -> dict[str, Any]:
        pad = getattr(self, "_pad", "")
        return {
            "id": f"{self._prefix}{number}",
            "type": self.types[0],
            "subject": f"10.88.{subject}/32",
            "observedAt": self._time,
            "payload": {"number": again, "pad": pad},
        }

    def batch(self, numbers: range) -> bytes:
        """Return the body of the request that writes one entry for each number."""
        return f'{{"brief":true,"events":[{self._rows(numbers)}]}}'.encode()

    def message(self, seq: int, numbers: range) -> bytes:
        """Return the message, for a WebSocket at `publish_path`, that writes one entry for each number."""
        return f'{{"seq":{seq},"events":[{self._rows(numbers)}]}}'.encode()

    def _rows(self, numbers: range) -> str:
        template, types = self._template, self.types
        return ",".join([template % (n, types[n % len(types)], n // 250 % 250, n % 250, n) for n in numbers])

    def event(self, number: int) -> NewEvent:
        """Return one event without an id, as large as those of a batch once it has an id and a time."""
        kind = self.types[number % len(self.types)]
        subject = f"10.88.{number // 250 % 250}.{number % 250}/32"
        return NewEvent(kind, subject, {"number": f"{number:010}", "pad": self._pad})

    async def read(self, client: NodeClient) -> AsyncIterator[list[StoredEvent]]:
        """Yield everything the group holds, page by page, in the order of the node's log."""
        after: str | None = ""
        while after is not None:
            page = await client.call("GET", f"{self.path}?limit={PAGE}&includeExpired=true&after={after}")
            yield [self._found(event) for event in page["events"]]
            after = page["next"]

    def _found(self, event: dict[str, Any]) -> StoredEvent:
        for local in ("recordedAt", "seq", "path"):  # differs between nodes
            del event[local]
        digest = hashlib.blake2b(msgspec.json.encode(event), digest_size=16).digest()
        written = str(event["payload"].get("number"))
        number = self.number_of(str(event["id"])) if self._named else int(written) if written.isdecimal() else written
        return StoredEvent(event["id"] if written != f"{number:010}" else number, digest)

    def number_of(self, id: str) -> int | str:
        """Return the number under which the event of this id was sent; an unknown id is returned unchanged."""
        tail = id.removeprefix(self._prefix)
        return int(tail) if tail != id and len(tail) == self._width and tail.isdecimal() else id

    def id_of(self, number: int) -> str:
        """Return the id of the event that was sent under a number."""
        return f"{self._prefix}{number:0{self._width}d}"


class TopicTarget:
    """The records of a topic, of about `size` bytes each."""

    def __init__(self, topic: str, size: int) -> None:
        self.topic = topic
        self.path = f"/v0/topics/{topic}"
        self._pad = "x" * max(0, size - 24)

    def batch(self, numbers: range | Sequence[int]) -> bytes:
        """Return the body of the request that writes one entry for each number."""
        pad = self._pad
        rows = [f'{{"data":{{"n":{n},"pad":"{pad}"}},"tag":"bench:tag"}}' for n in numbers]
        return f'{{"records":[{",".join(rows)}]}}'.encode()

    async def read(self, client: NodeClient) -> AsyncIterator[list[StoredEvent]]:
        """Yield all records of the topic, by page; a gap is an item with a text as number, before those of its page."""
        at, more = 0, True
        while more:
            page = await client.call("POST", f"{self.path}/diff", {"from_seq": at, "limit": PAGE})
            lost = page["tombstone"]
            yield [] if lost is None else [StoredEvent(f"a gap: {lost}", b"")]
            yield [_record(record) for record in page["records"]]
            at, more = page["next_from_seq"], not page["caught_up"]


def _record(record: dict[str, Any]) -> StoredEvent:
    data = record.get("data")
    digest = hashlib.blake2b(msgspec.json.encode(data), digest_size=16).digest()
    number = data.get("n") if isinstance(data, dict) else None
    return StoredEvent(number if isinstance(number, int) else f"seq {record['$seq']}", digest)


Target = GroupTarget | TopicTarget
