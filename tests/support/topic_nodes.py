"""Nodes as processes whose topics are written, read, routed and followed over HTTP. Blocking, like `NodeProcess`."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from tests.support.running import ApiError, NodeProcess
from tests.support.waiting import wait_for

GONE = (OSError, http.client.HTTPException, AssertionError, ValueError)
"""The errors of a call to a node that is dead, or not up yet."""


class TopicNode(NodeProcess):
    """A node, called about its topics."""

    def v0(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request below /v0. Raises ApiError for an error; OSError or HTTPException while the node does not
        answer."""
        return self.request(method, f"/v0{path}", body)

    def state(self, topic: str) -> dict[str, Any]:
        """Return the state of a topic."""
        found: dict[str, Any] = self.v0("GET", f"/topics/{topic}")
        return found

    def write(self, topic: str, *records: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Write one batch of whole records; when this returns, it is acknowledged."""
        written: dict[str, Any] = self.v0("POST", f"/topics/{topic}", {"records": [*records], **members})
        return written

    def insist(self, topic: str, *records: dict[str, Any], key: str) -> dict[str, Any]:
        """Write a batch under one idempotency key, and retry until it is acknowledged."""

        def written() -> dict[str, Any] | None:
            with contextlib.suppress(*GONE):
                return self.write(topic, *records, idempotency_key=key)
            return None

        return wait_for(written, f"{self.name} to take {key}", seconds=30, every=0.05) or {}

    def records(self, topic: str) -> list[dict[str, Any]]:
        """Return all records of a topic, with their tags."""
        found: list[dict[str, Any]] = []
        at = 0
        while True:
            asked = {"from_seq": at, "limit": 1000, "include_tags": True}
            page = self.v0("POST", f"/topics/{topic}/diff", asked)
            assert page["tombstone"] is None, page["tombstone"]
            found += page["records"]
            at = page["next_from_seq"]
            if page["caught_up"]:
                return found

    def route(self, source: str, dest: str, **options: Any) -> dict[str, Any]:
        """Apply a router named after its two ends."""
        body = {"source": source, "dest": dest, **options}
        put: dict[str, Any] = self.v0("PUT", f"/routers/{quote(f'{source}->{dest}')}", body)
        return put

    def router(self, source: str, dest: str) -> dict[str, Any]:
        """Return the state of such a router, once it has caught up."""
        shown: dict[str, Any] = self.v0("GET", f"/routers/{quote(f'{source}->{dest}')}")
        return shown


class Follower(threading.Thread):
    """Follows a topic over SSE as a node does: it does not receive records under its own name.

    After a crash of the node it resumes where it was.
    """

    def __init__(self, node: TopicNode, topic: str, *, own: str) -> None:
        super().__init__(name=f"follower of {topic} at {node.name}", daemon=True)
        self.own = own
        self.seen: list[dict[str, Any]] = []
        self.at = 0
        self.streams = 0
        self.failure: BaseException | None = None
        self._node = node
        self._topic = topic
        self._end = threading.Event()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self._end.is_set():
            try:
                for kind, told in self._events():
                    self._take(kind, told)
            except (*GONE, AttributeError):
                self._end.wait(0.05)  # the node is dead, or the follower is to end
            except ApiError as refused:
                self.failure = refused
                return

    def _take(self, kind: str, told: dict[str, Any]) -> None:
        if kind == "record":
            self.seen += told["records"]
            self.at = told["to_seq"]
        elif kind != "caught-up":
            self.failure = AssertionError(f"{self.name} received {kind}: {told}")

    def _events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a new stream, until it ends."""
        asked = {"topics": {self._topic: {"from_seq": self.at}}, "node": self.own, "include_tags": True}
        session = self._node.v0("POST", "/watch", asked)
        self._connection = http.client.HTTPConnection("127.0.0.1", self._node.process.port, timeout=60)
        with contextlib.closing(self._connection) as connection:
            connection.request("GET", session["stream_url"])
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            self.streams += 1
            kind = ""
            for line in iter(answer.readline, b""):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def wait_seen(self, count: int, *, seconds: float = 60.0) -> None:
        """Wait until this number of records was received."""
        wait_for(
            lambda: len(self.seen) >= count or self.failure, f"{self.name} to see {count} records", seconds=seconds
        )
        assert self.failure is None, self.failure

    def finish(self) -> None:
        """End the follower; raises what went wrong in it."""
        self._end.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(10)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise self.failure


def content_of(record: dict[str, Any]) -> str:
    """Return the content of a record as one text: all but its seq and time."""
    return json.dumps({name: value for name, value in record.items() if name not in ("$seq", "$ts")}, sort_keys=True)


def duplicates_of(texts: list[str]) -> list[str]:
    """Return the texts that occur more than once."""
    return [text for text, count in Counter(texts).items() if count > 1]
